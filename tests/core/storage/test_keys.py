"""The key table: every key is found, and no damage ever turns one into "absent"."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawmem_core.contract.digest import sha256_digest
from clawmem_core.errors import StorageError
from clawmem_core.storage import keys
from clawmem_core.storage.log_format import Key
from clawmem_core.storage.paths import StorePaths

ID = b"checkpoint-id-16"


def _key(number: int, kind: str = "P") -> Key:
    return Key(keys.key_bytes(kind, str(number).encode()), bytes(16), number, kind, number % 3)


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    """Names of a store in an empty folder."""
    return StorePaths(tmp_path / "m.h5")


@pytest.mark.parametrize("count", [0, 1, 59, 60, 86, 5000])
def test_every_key_is_found_and_no_other(paths: StorePaths, count: int) -> None:
    """Hits give back what was stored, unknown keys and other kinds are absent."""
    keys.write(paths, ID, map(_key, range(count)))
    for number in range(0, count, max(1, count // 200)):
        assert _key(number) == keys.lookup(paths.keys, ID, _key(number).key, "P")
        assert keys.lookup(paths.keys, ID, _key(number).key, "V") is None
    for number in range(count, count + 100):
        assert keys.lookup(paths.keys, ID, _key(number).key, "P") is None
    assert 0o600 == os.stat(paths.keys).st_mode & 0o777


@settings(max_examples=60, deadline=None)
@given(prefixes=st.lists(st.binary(min_size=4, max_size=4) | st.just(b"\xff" * 4) | st.just(bytes(4)), max_size=400))
def test_any_distribution_of_keys(prefixes: list[bytes]) -> None:
    """Keys that crowd in one place, the last one included, spill and are found, like a dict."""
    table = {prefix + number.to_bytes(12, "big"): number for number, prefix in enumerate(prefixes)}
    data = b"".join(keys.encode(ID, [Key(key, bytes(16), number, "K", 1) for key, number in table.items()]))
    fd = os.memfd_create("keys")
    try:
        os.write(fd, data)
        path = f"/proc/self/fd/{fd}"
        for key, number in list(table.items())[::7]:
            found = _open_lookup(path, key)
            assert found is not None and number == found.record_id
        for prefix in prefixes[::11]:
            assert _open_lookup(path, prefix + b"\xff" * 12) is None
    finally:
        os.close(fd)


def _open_lookup(path: str, key: bytes) -> Key | None:
    """Look up in a file that has no name of its own (its /proc name is a symlink, which `lookup` refuses)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return keys._lookup(fd, ID, key, "K")
    finally:
        os.close(fd)


def test_last_of_equal_keys_counts(paths: StorePaths) -> None:
    """A key given twice is stored once, as it was last."""
    first, second = _key(1), _key(1)
    second.record_id = 99
    keys.write(paths, ID, [first, second])
    found = keys.lookup(paths.keys, ID, first.key, "P")
    assert found is not None and 99 == found.record_id


@pytest.mark.parametrize("count", [40, 300])
def test_damage_is_never_absent(paths: StorePaths, count: int) -> None:
    """A flipped byte gives the right answer or "unusable", for keys that are there and keys that are not."""
    keys.write(paths, ID, map(_key, range(count)))
    whole = Path(paths.keys).read_bytes()
    for at in [*range(0, 70), *range(70, len(whole), 97), len(whole) - 1]:
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        Path(paths.keys).write_bytes(data)
        for number in range(0, count, 7):
            assert keys.lookup(paths.keys, ID, _key(number).key, "P") in (_key(number), keys.UNUSABLE)
        assert keys.lookup(paths.keys, ID, _key(-5).key, "P") in (None, keys.UNUSABLE)


def test_cuts_are_never_absent(paths: StorePaths) -> None:
    """A table cut anywhere answers right or "unusable"."""
    keys.write(paths, ID, map(_key, range(300)))
    whole = Path(paths.keys).read_bytes()
    for length in range(0, len(whole), 311):
        Path(paths.keys).write_bytes(whole[:length])
        for number in range(0, 300, 7):
            assert keys.lookup(paths.keys, ID, _key(number).key, "P") in (_key(number), keys.UNUSABLE)


def test_stale_pages_are_noticed(paths: StorePaths) -> None:
    """Pages of another checkpoint's table, or in another place, make the table unusable there."""
    keys.write(paths, b"another-id-16-by", map(_key, range(100, 400)))
    stale = Path(paths.keys).read_bytes()
    keys.write(paths, ID, map(_key, range(300)))
    whole = Path(paths.keys).read_bytes()
    page = keys.PAGE_SIZE
    Path(paths.keys).write_bytes(whole[:page] + stale[page:])
    assert keys.lookup(paths.keys, ID, _key(1).key, "P") is keys.UNUSABLE
    Path(paths.keys).write_bytes(whole[:page] + whole[2 * page : 3 * page] + whole[page : 2 * page] + whole[3 * page :])
    assert all(
        keys.lookup(paths.keys, ID, _key(number).key, "P") in (_key(number), keys.UNUSABLE) for number in range(300)
    )


def test_other_checkpoint_missing_and_unreadable(paths: StorePaths) -> None:
    """A table of another checkpoint, none at all, or a folder in its place: unusable, and nothing is raised."""
    assert keys.lookup(paths.keys, ID, bytes(16), "P") is keys.UNUSABLE
    keys.write(paths, ID, [_key(1)])
    assert keys.lookup(paths.keys, b"another-id-16-by", _key(1).key, "P") is keys.UNUSABLE
    os.unlink(paths.keys)
    os.mkdir(paths.keys)
    assert keys.lookup(paths.keys, ID, _key(1).key, "P") is keys.UNUSABLE
    with pytest.raises(StorageError):
        keys.write(paths, ID, [])


def test_key_bytes() -> None:
    """The first half of SHA-256 over kind and parts."""
    assert sha256_digest(b"Kkey")[:16] == keys.key_bytes("K", b"key")
    assert sha256_digest(b"Pab")[:16] == keys.key_bytes("P", b"a", b"b")
