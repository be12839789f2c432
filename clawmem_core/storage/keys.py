"""The key table `<store>.keys`: look-up keys of everything in the checkpoint, so that a save never opens HDF5.

A derived file (docs/format.md § 5): a header that names the checkpoint, then 4 KiB pages. A key's home page follows
from its first four bytes; what does not fit there spills into the pages right behind. Invariants: every page carries
its number and a checksum seeded by the checkpoint id, so a flipped, stale or misplaced page is noticed and never read
as "absent"; the reader raises nothing, an unusable table only makes the caller read the HDF5 file.
"""

from __future__ import annotations

import struct
from zlib import crc32

from clawmem_core.contract.digest import sha256_digest
from clawmem_core.errors import StorageError
from clawmem_core.storage import fs
from clawmem_core.storage.atomic import AtomicFile
from clawmem_core.storage.log_format import KEY_SIZE, NO_ID, Key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from clawmem_core.storage.paths import StorePaths

MAGIC = b"CLAWMKEY"
VERSION = 1
PAGE_SIZE = 4096
PAGE_KEYS = 85  # 12 bytes of head, 85 keys, 4 bytes of checksum
_TARGET_FILL = 60  # keys a page is meant to hold
_SPILLS = 1  # page flag: keys of this or an earlier home lie in the next page

_HEADER = struct.Struct("<8sHHI16sQ20xI")
_PAGE = struct.Struct("<IHHI")
_U32 = struct.Struct("<I")
HEADER_SIZE = _HEADER.size

#: answer of `lookup` where the table cannot be used
UNUSABLE = Key(NO_ID, NO_ID, 0, "\0", 0)


def key_bytes(kind: str, *parts: bytes) -> bytes:
    """The 16 bytes under which something is known: start of SHA-256 over kind and parts.

    Parts of varying length need a separator or length of the caller's, except where there is only one.
    """
    return sha256_digest(kind.encode("ascii") + b"".join(parts))[:16]


def lookup(path: str, checkpoint_id: bytes, key: bytes, kind: str) -> Key | None:
    """The key in the table at `path`, None if it is certainly not there, UNUSABLE if the table cannot tell.

    `checkpoint_id`: of the HDF5 file the answer is about (a log's base). Raises nothing.
    """
    try:
        fd = fs.open_existing(path, fs.RDONLY | fs.NOFOLLOW)
        if fd is None:
            return UNUSABLE
        try:
            return _lookup(fd, checkpoint_id, key, kind)
        finally:
            fs.close(fd)
    except StorageError:
        return UNUSABLE


def _lookup(fd: int, checkpoint_id: bytes, key: bytes, kind: str) -> Key | None:
    head = fs.pread(fd, HEADER_SIZE, 0)
    if len(head) < HEADER_SIZE or crc32(head[:-4]) != _U32.unpack_from(head, HEADER_SIZE - 4)[0]:
        return UNUSABLE
    magic, version, _, homes, of, _, _ = _HEADER.unpack(head)
    if magic != MAGIC or version != VERSION or of != checkpoint_id or not homes:
        return UNUSABLE
    number = _home(key, homes)
    while True:
        page = fs.pread(fd, PAGE_SIZE, PAGE_SIZE * (number + 1))
        if len(page) < PAGE_SIZE or crc32(page[:-4], crc32(checkpoint_id)) != _U32.unpack_from(page, PAGE_SIZE - 4)[0]:
            return UNUSABLE
        own, count, flags, _ = _PAGE.unpack_from(page)
        if own != number or count > PAGE_KEYS:
            return UNUSABLE
        at = page.find(key, _PAGE.size)
        while at >= 0:
            if (at - _PAGE.size) % KEY_SIZE == 0 and at < _PAGE.size + count * KEY_SIZE:
                found = Key.unpack(page, at)
                if found.kind == kind:
                    return found
            at = page.find(key, at + 1)
        if not flags & _SPILLS:
            return None
        number += 1


def _home(key: bytes, homes: int) -> int:
    """The page a key belongs to: its first four bytes scaled to the number of home pages."""
    return int.from_bytes(key[:4], "big") * homes >> 32


def write(paths: StorePaths, checkpoint_id: bytes, keys: Iterable[Key]) -> None:
    """Replace the key table by one for this checkpoint. Of equal (key, kind) the last counts. Raises StorageError."""
    with AtomicFile(paths.keys, fs.stat(paths.real)) as file:
        for part in encode(checkpoint_id, keys):
            file.write(part)
        file.commit()


def encode(checkpoint_id: bytes, keys: Iterable[Key]) -> Iterator[bytes]:
    """The table as bytes, in pieces: the header's page, then page after page."""
    newest = {(key.key, key.kind): key for key in keys}
    ordered = sorted(key.pack() for key in newest.values())
    homes = len(ordered) // _TARGET_FILL + 1
    head = _HEADER.pack(MAGIC, VERSION, 0, homes, checkpoint_id, len(ordered), 0)[:-4]
    yield (head + _U32.pack(crc32(head))).ljust(PAGE_SIZE, b"\0")
    seed = crc32(checkpoint_id)
    at = number = 0
    waiting: list[bytes] = []
    while number < homes or waiting:
        while at < len(ordered) and _home(ordered[at], homes) <= number:
            waiting.append(ordered[at])
            at += 1
        here, waiting = waiting[:PAGE_KEYS], waiting[PAGE_KEYS:]
        page = _PAGE.pack(number, len(here), _SPILLS if waiting else 0, 0) + b"".join(here)
        page = page.ljust(PAGE_SIZE - 4, b"\0")
        yield page + _U32.pack(crc32(page, seed))
        number += 1
