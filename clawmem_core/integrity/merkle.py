"""Leaf hashes of rows and the Merkle tree over them.

Invariants: a row has exactly one encoding, whatever width, padding or byte order its columns are stored in; a leaf, an
inner node and a table row can never be taken for one another (first byte 0x00, 0x01, 0x02). Sources: RFC 6962 § 2.1
(tree shape and domain separation); layout of the encoding in docs/format.md § 7.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import repeat

import numpy as np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from numpy.typing import NDArray

RECORD, NODE, TABLE_ROW = b"\x00", b"\x01", b"\x02"
EMPTY_ROOT: Final = sha256(b"").digest()


def encode_rows(tag: bytes, numbers: Sequence[NDArray[Any]], texts: Sequence[Sequence[bytes]]) -> Iterator[bytes]:
    """The encodings of rows given by column: tag, numbers little-endian, byte lengths of the texts as u32, the texts.

    `numbers` and `texts` are columns of one length, in the order in which they are encoded.
    """
    names = [f"n{position}" for position in range(len(numbers))]
    layout: list[Any] = [("tag", "S1")]
    layout += [(name, column.dtype.newbyteorder("<")) for name, column in zip(names, numbers, strict=True)]
    heads = np.empty(len(numbers[0]), [*layout, ("lengths", "<u4", (len(texts),))])
    heads["tag"] = np.frombuffer(tag, "S1")
    for name, column in zip(names, numbers, strict=True):
        heads[name] = column
    for position, text in enumerate(texts):
        heads["lengths"][:, position] = np.fromiter(map(len, text), "<u4", len(text))
    packed: list[bytes] = heads.view(f"V{heads.dtype.itemsize}").tolist()
    return map(b"".join, zip(packed, *texts, strict=True))


def hash_rows(rows: Iterator[bytes]) -> list[bytes]:
    """SHA-256 of each row."""
    return [digest.digest() for digest in map(sha256, rows)]


def tree_root(leaves: Sequence[bytes]) -> bytes:
    """Root of the Merkle tree over 32-byte leaf hashes, in order; SHA-256 of nothing for no leaf.

    A node without a partner moves up a level unchanged, which gives RFC 6962's tree.
    """
    level = list(leaves)
    if not level:
        return EMPTY_ROOT
    while len(level) > 1:
        left, right = level[0::2], level[1::2]
        rest = left[len(right) :]
        level = hash_rows(map(b"".join, zip(repeat(NODE, len(right)), left[: len(right)], right, strict=True))) + rest
    return level[0]


def table_digest(leaves: Sequence[bytes]) -> bytes:
    """Digest of a table whose row order means nothing: SHA-256 over its leaf hashes in ascending order."""
    return sha256(b"".join(sorted(leaves))).digest()
