"""The Merkle tree against RFC 6962 as written, and the row encoding against struct."""

from __future__ import annotations

import struct
from hashlib import sha256

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.integrity import merkle


def reference_root(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962 § 2.1, over leaf hashes."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01" + reference_root(leaves[:split]) + reference_root(leaves[split:])).digest()


def hashes(numbers: list[int]) -> list[bytes]:
    """A leaf hash for each number."""
    return [sha256(bytes([number])).digest() for number in numbers]


def test_root_is_that_of_rfc_6962() -> None:
    """For every small number of leaves."""
    for count in range(70):
        leaves = hashes(list(range(count)))
        assert reference_root(leaves) == merkle.tree_root(merkle.tree_levels(merkle.as_array(leaves)))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=40), st.lists(st.integers(0, 9), max_size=40), st.integers(0, 40))
def test_taking_over_nodes_changes_nothing(old: list[int], new: list[int], shared: int) -> None:
    """A tree built on an earlier one equals one built from nothing."""
    new = old[:shared] + new
    before = merkle.tree_levels(merkle.as_array(hashes(old)))
    assert reference_root(hashes(new)) == merkle.tree_root(merkle.tree_levels(merkle.as_array(hashes(new)), before))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(width=32), st.binary(), st.binary()), min_size=1))
def test_encoding_is_as_documented(rows: list[tuple[int, float, bytes, bytes]]) -> None:
    """Tag, numbers little-endian, lengths, texts; whatever byte order the columns have."""
    ids = np.array([row[0] for row in rows], ">i8")
    weights = np.array([row[1] for row in rows], ">f4")
    encoded = merkle.encode_rows(b"\x00", [ids, weights], [[row[2] for row in rows], [row[3] for row in rows]])
    expected = [
        b"\x00" + struct.pack("<qf", id, weight) + struct.pack("<2I", len(one), len(two)) + one + two
        for id, weight, one, two in rows
    ]
    assert expected == list(encoded)


def test_table_digest_ignores_order() -> None:
    """Rows in another order, same digest; another row, another digest."""
    leaves = hashes([1, 2, 3])
    assert merkle.table_digest(leaves) == merkle.table_digest(leaves[::-1])
    assert merkle.table_digest(leaves) != merkle.table_digest(leaves[:2])
