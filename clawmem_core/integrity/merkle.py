"""Leaf hashes of rows and the Merkle tree over them.

Invariants: a row has exactly one encoding, whatever width, padding or byte order its columns are stored in; a leaf, an
inner node and a table row can never be taken for one another (first byte 0x00, 0x01, 0x02). Sources: RFC 6962 § 2.1
(tree shape and domain separation); layout of the encoding in docs/format.md § 7.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from numpy.typing import NDArray

    #: a column of byte strings; as an array u8[N, size] where they are all of one size
    Texts = Sequence[bytes] | NDArray[np.uint8]

RECORD, NODE, TABLE_ROW = b"\x00", b"\x01", b"\x02"
EMPTY_ROOT: Final = sha256(b"").digest()


def encode_rows(tag: bytes, numbers: Sequence[NDArray[Any]], texts: Sequence[Texts]) -> Iterator[bytes]:
    """The encodings of rows given by column: tag, numbers little-endian, byte lengths of the texts as u32, the texts.

    `numbers` and `texts` are columns of one length, in the order in which they are encoded. The first of `texts` may be
    an array u8[N, size] of texts that are all of one size.
    """
    names = [f"n{position}" for position in range(len(numbers))]
    layout: list[Any] = [("tag", "S1")]
    layout += [(name, column.dtype.newbyteorder("<")) for name, column in zip(names, numbers, strict=True)]
    layout += [("lengths", "<u4", (len(texts),))]
    whole = texts[0] if texts and isinstance(texts[0], np.ndarray) else None
    if whole is not None:
        layout += [("whole", "u1", whole.shape[1:])]
    heads = np.zeros(len(numbers[0]), layout)
    heads["tag"] = np.frombuffer(tag, "S1")
    for name, column in zip(names, numbers, strict=True):
        heads[name] = column
    if whole is not None:
        heads["whole"] = whole
        heads["lengths"][:, 0] = whole.shape[1]
    held: list[Sequence[bytes]] = []
    for position, text in enumerate(texts):
        if not isinstance(text, np.ndarray) and any(text):
            heads["lengths"][:, position] = np.fromiter(map(len, text), "<u4", len(text))
            held.append(text)
    packed: list[bytes] = heads.view(f"V{heads.dtype.itemsize}").tolist()
    return map(b"".join, zip(packed, *held, strict=True))


def hash_rows(rows: Iterator[bytes]) -> list[bytes]:
    """SHA-256 of each row."""
    return [digest.digest() for digest in map(sha256, rows)]


def as_list(hashes: NDArray[np.uint8]) -> list[bytes]:
    """Rows of a u8[N, 32] array as byte strings."""
    found: list[bytes] = np.ascontiguousarray(hashes).view("V32").ravel().tolist()
    return found


def as_array(hashes: Sequence[bytes]) -> NDArray[np.uint8]:
    """32-byte strings as a u8[N, 32] array."""
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 32)


def tree_levels(leaves: NDArray[np.uint8], before: Sequence[NDArray[np.uint8]] = ()) -> list[NDArray[np.uint8]]:
    """The levels of the Merkle tree over u8[N, 32] leaf hashes in order, the leaves first, the root last.

    A node without a partner moves up a level unchanged, which gives RFC 6962's tree. `before`: levels of an earlier
    tree, whose nodes are taken over where both children are the same.
    """
    levels = [leaves]
    while len(level := levels[-1]) > 1:
        pairs = len(level) // 2
        children = level[: 2 * pairs].reshape(pairs, 64)
        above = np.empty((len(level) - pairs, 32), np.uint8)
        above[pairs:] = level[2 * pairs :]
        fresh: Any = slice(None)
        if len(before) > len(levels):
            old, old_above = before[len(levels) - 1], before[len(levels)]
            kept = min(pairs, len(old) // 2)
            fresh = np.ones(pairs, bool)
            fresh[:kept] = (children[:kept] != old[: 2 * kept].reshape(kept, 64)).any(axis=1)
            above[:kept] = old_above[:kept]
        above[:pairs][fresh] = as_array(_hash_nodes(np.ascontiguousarray(children[fresh])))
        levels.append(above)
    return levels


def _hash_nodes(children: NDArray[np.uint8]) -> list[bytes]:
    """The nodes above u8[N, 64] pairs of hashes."""
    begun = sha256(NODE).copy  # to copy a hash costs less than to begin one
    found: list[bytes] = []
    for pair in children.view("V64").ravel().tolist():
        node = begun()
        node.update(pair)
        found.append(node.digest())
    return found


def tree_root(levels: Sequence[NDArray[np.uint8]]) -> bytes:
    """The root of `tree_levels`; SHA-256 of nothing for no leaf."""
    return levels[-1].tobytes() if len(levels[0]) else EMPTY_ROOT


def table_digest(leaves: Sequence[bytes]) -> bytes:
    """Digest of a table whose row order means nothing: SHA-256 over its leaf hashes in ascending order."""
    return sha256(b"".join(sorted(leaves))).digest()
