"""The façade: handles, threads, forks, refusals; what it keeps is the state machine's to show."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clawmem_core import MemoryEntry, MemoryStore, SearchOptions
from clawmem_core.errors import (
    ClawmemError,
    ClosedError,
    DeletedError,
    DimensionError,
    ExistsError,
    ForkedError,
    InvalidInputError,
    InvalidTimeError,
    LockedError,
    NotAStoreError,
    NotFoundError,
    ReadOnlyError,
)
from clawmem_core.writer import Writer


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """An open store of two-dimensional vectors."""
    return MemoryStore.create(tmp_path / "m.h5", dim=2)


def path_of(store: MemoryStore) -> str:
    """Where it lies."""
    return str(store.stats()["path"])


def test_one_writer(store: MemoryStore) -> None:
    """A second writer is refused, a reader is not; closing lets the lock go."""
    with pytest.raises(LockedError):
        MemoryStore.open(path_of(store))
    with MemoryStore.open_read_only(path_of(store)) as reader:
        assert 0 == reader.stats()["count"]
    path = path_of(store)
    store.close()
    MemoryStore.open(path).close()


def test_create_never_replaces(store: MemoryStore) -> None:
    """An existing store is kept."""
    store.save(MemoryEntry("kept"))
    path = path_of(store)
    store.close()
    with pytest.raises(ExistsError):
        MemoryStore.create(path, dim=2)
    with MemoryStore.open_read_only(path) as reader:
        assert ["kept"] == [record.chunk for record in reader.records()]


def test_reader_is_a_point_in_time(store: MemoryStore) -> None:
    """A read-only handle refuses writes and does not see later ones, checkpoints included."""
    store.save(MemoryEntry("one", [1.0, 0.0]))
    with MemoryStore.open_read_only(path_of(store)) as reader:
        store.save(MemoryEntry("two", [0.0, 1.0]))
        store.flush_wal()
        store.delete(0)
        assert ["one"] == [record.chunk for record in reader.records()]
        assert [0] == [hit.index for hit in reader.search([1.0, 0.0], "one")]
        for write in (lambda: reader.save(MemoryEntry("x")), lambda: reader.delete(0), reader.flush_wal, reader.tick):
            with pytest.raises(ReadOnlyError):
                write()


def test_a_bad_batch_stores_nothing(store: MemoryStore) -> None:
    """One bad entry refuses the whole batch before anything is written."""
    with pytest.raises(DimensionError):
        store.save_batch([MemoryEntry("good", [1.0, 2.0]), MemoryEntry("bad", [1.0])])
    assert 0 == store.stats()["count"]
    assert ("saved", 0) == (lambda answer: (answer.status, answer.index))(store.save(MemoryEntry("next")))


def test_deleting_is_all_or_nothing(store: MemoryStore) -> None:
    """An id that is not live refuses the whole call."""
    store.save_batch([MemoryEntry("a"), MemoryEntry("b")])
    store.delete(1)
    for ids, error in (([0, 1], DeletedError), ([0, 7], NotFoundError)):
        with pytest.raises(error):
            store.delete(ids)
    assert "a" == store.get(0).chunk


def test_key_is_free_after_a_delete(store: MemoryStore) -> None:
    """A deleted record's key makes a new record; undeleting the old one leaves the key with the new."""
    store.save_or_update("k", MemoryEntry("old"))
    store.delete(0)
    assert 1 == store.save_or_update("k", MemoryEntry("new")).index
    store.undelete(0)
    assert 1 == store.save_or_update("k", MemoryEntry("newer")).index
    assert ["old", "newer"] == [record.chunk for record in store.records()]


def test_an_undeleted_record_leaves_a_taken_key(store: MemoryStore) -> None:
    """A key belongs to one live record, before and after a checkpoint, also where both come back at once."""
    for chunk in ("first", "second"):
        store.save_or_update("k", MemoryEntry(chunk))
        store.delete(store.stats()["next_index"] - 1)
    store.save_or_update("k", MemoryEntry("third"))
    assert 1 == store.undelete(0)
    store.delete(2)
    assert 1 == store.undelete([1])
    for _ in range(2):
        assert [("first", ""), ("second", "k")] == [(record.chunk, record.key) for record in store.records()]
        assert (3, 2) == (store.stats()["count"], store.stats()["active"])
        store.flush_wal()
    store.delete([0, 1])
    store.undelete([2, 1])
    assert [("second", ""), ("third", "k")] == [(record.chunk, record.key) for record in store.records()]
    assert "updated" == store.save_or_update("k", MemoryEntry("fourth")).status


def test_iterating_across_changes(store: MemoryStore) -> None:
    """A checkpoint or a compaction under an iterator is no matter to it; a closed handle is."""
    store.save_batch([MemoryEntry(f"record {number}") for number in range(6)])
    store.flush_wal()
    rows = store.records()
    seen = [next(rows).id]
    store.save(MemoryEntry("meanwhile"))
    store.flush_wal()
    seen.append(next(rows).id)
    store.delete(5)
    store.compact()
    seen.extend(record.id for record in rows)
    assert list(range(6)) == seen
    rows = store.records()
    next(rows)
    store.close()
    with pytest.raises(ClosedError):
        next(rows)


def test_a_forgotten_handle_lets_go(store: MemoryStore) -> None:
    """As a file does: neither the lock nor a descriptor stays with a handle that nobody holds."""
    path = path_of(store)
    store.close()
    before = len(os.listdir("/proc/self/fd"))
    MemoryStore.open(path).save(MemoryEntry("x"))
    MemoryStore.open(path).flush_wal()
    MemoryStore.open_read_only(path).search(None, "x")
    assert before == len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    "text, options",
    [(b"x", {}), (5, {}), ("x", {"since": "soon"}), ("x", {"until": float("nan")}), ("x", {"k": 0}), ("x", {"k": -1})],
)
def test_search_refuses_by_name(store: MemoryStore, text: Any, options: dict[str, Any]) -> None:
    """Never a bare TypeError, nor an empty page for what makes no sense."""
    with pytest.raises((InvalidInputError, InvalidTimeError)):
        store.search(None, text, SearchOptions(**options))


def test_graph_refusals(store: MemoryStore) -> None:
    """Ends of an edge, a session's range and names are checked."""
    alice = store.add_entity("Alice", "person")
    with pytest.raises(NotFoundError):
        store.add_relation(alice, 7, "knows")
    with pytest.raises(NotFoundError):
        store.add_alias("x", 7)
    with pytest.raises(InvalidInputError):
        store.add_relation(alice, alice, "knows", float("nan"))
    store.save(MemoryEntry("a"))
    for start, end in ((1, 0), (0, 5), (-2, 0)):
        with pytest.raises(InvalidInputError):
            store.add_session("s", start, end)


def test_closed_handle(store: MemoryStore) -> None:
    """Closing twice is nothing; using a closed handle is an error."""
    store.close()
    store.close()
    with pytest.raises(ClosedError):
        store.stats()


def test_threads_share_a_handle(store: MemoryStore) -> None:
    """Four threads saving and searching: every record once."""
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for at in range(20):
                store.save(MemoryEntry(f"thread {number} record {at}", [1.0, number + at]))
                store.search([1.0, 1.0], f"thread {number}", SearchOptions(3))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == errors
    assert list(range(80)) == [record.id for record in store.records()]
    assert 80 == len({record.chunk for record in store.records()})


def test_fork_is_refused(store: MemoryStore) -> None:
    """A child may not use the handle, and its end does not free the parent's lock."""
    store.save(MemoryEntry("before"))
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (store.stats, lambda: store.save(MemoryEntry("x")), store.flush_wal):
            try:
                use()
            except ForkedError:
                refused += 1
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert 3 == os.waitstatus_to_exitcode(status)
    with pytest.raises(LockedError):
        MemoryStore.open(path_of(store))
    assert 1 == store.save(MemoryEntry("after")).index


def test_failed_automatic_checkpoint_is_a_warning(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The save is acknowledged, durable, and the handle remembers what went wrong."""
    from clawmem_core.errors import StorageError
    from clawmem_core.storage import checkpoint

    path = path_of(store)
    store.close()
    small = MemoryStore.create(path + "2.h5", dim=2, wal_max_entries=1)

    def full(*_: object, **__: object) -> None:
        raise StorageError(path="m.h5", detail="No space left on device")

    monkeypatch.setattr(checkpoint, "checkpoint", full)
    for number in range(3):
        assert number == small.save(MemoryEntry(f"record {number}")).index
    assert any("No space left" in warning for warning in small.warnings)
    assert 3 == small.stats()["wal_pending"]


def test_compaction_with_a_failed_checkpoint_is_in_the_log(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error does not say that the old state is kept: whoever opens the store next sees it compacted."""
    from clawmem_core.errors import StorageError, UnfinishedError
    from clawmem_core.storage import checkpoint

    path = path_of(store)
    store.save_batch([MemoryEntry("stays"), MemoryEntry("goes")])
    store.delete(1)

    def full(*_: object, **__: object) -> None:
        raise StorageError(path="m.h5", detail="No space left on device", errno=28)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "checkpoint", full)
        with pytest.raises(UnfinishedError, match="No space left on device; the compaction is in the log"):
            store.compact()
    store.close()
    with MemoryStore.open(path) as again:
        assert 1 == again.count
        again.flush_wal()
        assert 1 == again.count


@pytest.mark.parametrize("id", ["0", 0.0, True, None, [0.5], {"a": 1}])
def test_ids_are_whole_numbers(store: MemoryStore, id: object) -> None:
    """Anything else is refused by name; numpy's whole numbers are whole numbers."""
    store.save(MemoryEntry("a"))
    for use in (store.get, store.delete, store.undelete, store.boost):
        with pytest.raises(InvalidInputError):
            use(id)  # type: ignore[operator]
    assert "a" == store.get(np.int64(0)).chunk
    assert 1 == store.delete(np.array([0]))


def test_entries_are_entries(store: MemoryStore) -> None:
    """A dict is refused by name; numpy scalars are numbers."""
    with pytest.raises(InvalidInputError):
        store.save({"chunk": "x"})  # type: ignore[arg-type]
    store.save(MemoryEntry("x", [np.float32(1.0), np.float64(2.0)]))
    assert [1.0, 2.0] == store.embedding(store.get(0))


def test_a_deleted_record_takes_no_key(store: MemoryStore) -> None:
    """An exported deleted line whose key is live elsewhere leaves that record alone."""
    from clawmem_core import door

    store.save_or_update("k", MemoryEntry("live"))
    path = path_of(store)
    store.close()
    with Writer.open(path) as writer:
        record = door.object_record({"chunk": "dead", "key": "k", "deleted": True}, 2, True)
        assert ("saved", 1) == writer.save(record)
        writer.commit()
    with MemoryStore.open(path) as again:
        assert ["live"] == [record.chunk for record in again.records()]
        assert 0 == again.save_or_update("k", MemoryEntry("newer")).index


@pytest.mark.parametrize("suffix", [".wal", ""])
def test_files_taken_away(store: MemoryStore, suffix: str) -> None:
    """A save into a log that nobody can find any more is not acknowledged."""
    store.save(MemoryEntry("a"))
    os.unlink(path_of(store) + suffix)
    with pytest.raises(ClawmemError):
        store.save(MemoryEntry("b"))


def test_no_lock_beside_what_is_no_store(tmp_path: Path) -> None:
    """Opening a text file leaves no file."""
    (tmp_path / "text.h5").write_text("no store\n")
    with pytest.raises(NotAStoreError):
        MemoryStore.open(tmp_path / "text.h5")
    assert ["text.h5"] == [path.name for path in tmp_path.iterdir()]
