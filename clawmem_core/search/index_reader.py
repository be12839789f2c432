"""The checkpointed rows of a store, read from its index: what overlays, readers and executors stand on.

Loaded by one-shot commands: neither numpy nor h5py is needed. The stored vectors are read from the HDF5 file itself,
at the offsets the index holds.

Invariants: what is handed out was checked (index_sections.py); an index that is not the one of this very HDF5 file is
never used; when a check fails while reading, the reader takes a fresh index from `rebuild`, made of the HDF5 file, and
answers from that (`epoch` counts how often). Without `rebuild` every failure is UnusableIndex.
"""

from __future__ import annotations

from itertools import pairwise

from clawmem_core.errors import DamagedError, StorageError
from clawmem_core.model import Record
from clawmem_core.search import index_format as form
from clawmem_core.search.index_format import UnusableIndex
from clawmem_core.search.index_sections import Sections
from clawmem_core.search.index_segment import Segment
from clawmem_core.search.index_tables import IndexTables, healing
from clawmem_core.storage import fs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clawmem_core.storage.log_format import Identity, LogState

__all__ = ["IndexReader", "UnusableIndex"]

KEPT_NAMES = 10_000  # strings of tables that are kept decoded
MAPPED_VECTORS = 16 << 20  # bytes of int8 vectors up to which they are read through the mapping


class IndexReader(IndexTables):
    """One checkpoint's rows. `count` rows, `active` of them live; `dim`; `float16`: how vectors are stored.

    `data`: a whole index; `h5_fd`: the HDF5 file it was made from, or -1 where only an in-memory copy of the vectors is
    used. The reader closes neither. `memo`: whatever executors keep about these rows. `rebuild`: gives the bytes of a
    fresh index, for when this one turns out to be damaged; `damage`: why it did, or "".
    """

    def __init__(self, data: Any, h5_fd: int) -> None:
        self.h5_fd = h5_fd
        self.memo: dict[str, Any] = {}
        self.rebuild: Callable[[], Any] | None = None
        self.damage = ""
        self.epoch = 0
        self._fd = -1
        self._map: Any = None
        self._take(data)

    def _take(self, data: Any) -> None:
        """Read from these bytes from now on."""
        self.sections = Sections(data)
        self.header = self.sections.header
        self.count, self.dim = self.header.rows, self.header.dim
        self.float16 = bool(self.header.flags & form.FLOAT16)
        self.vector_bytes = self.dim * (2 if self.float16 else 4)
        self.store_id, self.checkpoint_id = self.header.store_id, self.header.checkpoint_id
        self.generation = self.header.generation
        self._config: Mapping[str, Any] | None = None
        self._segments: list[Segment] | None = None
        self._names: dict[tuple[str, int], str] = {}
        self._nameless = -1
        totals = self.sections.column("totals")
        if totals is None or len(totals) != form.TOTALS.size:
            raise UnusableIndex("section totals is missing")
        (self.active, self.lengths, self.neighbour_lengths, self.vectors, self.step, self.error_max, self.error_spread,
         self.neighbour_weight, self.ascending_times, self.shortest) = form.TOTALS.unpack(totals)  # fmt: skip

    def heal(self, reason: UnusableIndex) -> None:
        """Go on with a fresh index. Raises `reason` where there is no way to get one."""
        if self.rebuild is None:
            raise reason
        rebuild, self.rebuild = self.rebuild, None
        self.memo.clear()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            fs.close(fd)
        self._take(rebuild())
        self.damage = str(reason)
        self.epoch += 1

    @classmethod
    def open(cls, path: str, h5_fd: int) -> IndexReader:
        """The index at `path`, if it is whole and of the HDF5 file open as `h5_fd`. Raises UnusableIndex."""
        try:
            fd = fs.open_existing(path)
            if fd is None:
                raise UnusableIndex("missing")
            try:
                return cls._open(fd, h5_fd)
            except BaseException:
                fs.close(fd)
                raise
        except StorageError as error:
            raise UnusableIndex(error.message) from None

    @classmethod
    def _open(cls, fd: int, h5_fd: int) -> IndexReader:
        size = fs.fstat(fd).st_size
        if size < form.HEADER_SIZE:
            raise UnusableIndex("cut short")
        header = form.Header.unpack(fs.pread(fd, form.HEADER_SIZE, 0))
        store = fs.fstat(h5_fd)
        if (store.st_size, store.st_mtime_ns) != (header.h5_size, header.h5_mtime_ns):
            raise UnusableIndex("of another checkpoint")
        if fs.pread(h5_fd, 16, header.h5_id_offset) != header.checkpoint_id:
            raise UnusableIndex("of another checkpoint")
        return cls.of_file(fd, h5_fd)

    @classmethod
    def of_file(cls, fd: int, h5_fd: int = -1) -> IndexReader:
        """The index open as `fd`, whatever file it belongs to; closing the reader closes `fd`. Raises UnusableIndex."""
        size = fs.fstat(fd).st_size
        if size < form.HEADER_SIZE:
            raise UnusableIndex("cut short")
        mapped = fs.map_file(fd, size)
        reader = cls(mapped, h5_fd)
        reader._fd, reader._map = fd, mapped
        return reader

    def close(self) -> None:
        """Unmap and close the index. The HDF5 file stays open."""
        self.memo.clear()
        self._segments = None
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            fs.close(fd)
        try:
            self.sections.close()
            if self._map is not None:
                self._map.close()
        except BufferError:
            pass  # somebody still holds a part of it; the memory goes with the last of them

    @property
    def fd(self) -> int:
        """The open index file; -1 for one in memory."""
        return self._fd

    def identity(self) -> Identity:
        """Store, checkpoint and how much of which log is applied, for finding the log that belongs to it."""
        from clawmem_core.storage.log_format import Identity

        log_id, length, crc = self.header.mark
        return Identity(
            store_id=self.store_id, checkpoint_id=self.checkpoint_id, h5_id_offset=self.header.h5_id_offset,
            state=self.state, generation=self.generation, dim=self.dim, base_rows=self.count,
            mark_log_id=log_id, mark_length=length, mark_crc=crc,
        )  # fmt: skip

    @property
    def state(self) -> LogState:
        """Counters at the checkpoint."""
        from clawmem_core.storage.log_format import LogState

        return LogState.unpack(self.header.state)

    @property
    def config(self) -> Mapping[str, Any]:
        """The store's settings by name."""
        if self._config is None:
            self._config = self._settings()
        return self._config

    @healing
    def _settings(self) -> Mapping[str, Any]:
        return form.unpack_settings(bytes(self.sections.blob("settings")))

    @property
    def segments(self) -> list[Segment]:
        """The posting segments."""
        if self._segments is None:
            numbers = sorted(segment for name, segment in self.sections.table if name == "segment")
            self._segments = [Segment(self.sections, number) for number in numbers]
        return self._segments

    # ------------------------------------------------------------ rows

    @healing
    def row_of(self, id: int) -> int:
        """The row of a record id, or -1."""
        if self.sections.section("id") is None:
            return id if 0 <= id < self.count else -1
        row = self.first_row(id)
        return row if row < self.count and self.id_at(row) == id else -1

    @healing
    def first_row(self, id: int) -> int:
        """The first row whose id is at least `id`."""
        if self.sections.section("id") is None:
            return min(max(id, 0), self.count)
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.id_at(middle) < id:
                low = middle + 1
            else:
                high = middle
        return low

    @healing
    def id_at(self, row: int) -> int:
        """The id of a row."""
        found: int = self.sections.value("id", row, row)
        return found

    def string(self, table: str, number: int) -> str:
        """A string of a table. Raises DamagedError for one that is not UTF-8, as the HDF5 file then holds it."""
        data = self.sections.string(table, number)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise DamagedError(path=fs.path_of(self.h5_fd), detail=f"{table} {number} is not UTF-8 ({error})") from None

    @healing
    def text(self, row: int) -> str:
        """The text of a row."""
        return self.string("text", row)

    @healing
    def channel(self, row: int) -> str:
        """The source channel of a row."""
        return self._name("chans", self.sections.value("chan", row, 0))

    @healing
    def tags(self, row: int) -> str:
        """The tags of a row."""
        return self._name("tags", self.sections.value("tag", row, 0))

    def _name(self, table: str, code: int) -> str:
        """A string of a table; those seen are kept, up to a number."""
        found = self._names.get((table, code))
        if found is None:
            if len(self._names) >= KEPT_NAMES:
                self._names.clear()
            found = self._names[table, code] = self.string(table, code)
        return found

    @healing
    def session_code_of(self, row: int) -> int:
        """The number of a row's (scope, session)."""
        found: int = self.sections.value("session", row, 0)
        return found

    @healing
    def session_name(self, code: int) -> str:
        """The session id of a (scope, session) number."""
        return self._name("ses", code)

    @healing
    def session(self, row: int) -> str:
        """The session id of a row; "" for none."""
        return self.session_name(self.session_code_of(row))

    @healing
    def key(self, row: int) -> str:
        """The upsert key of a row; "" for none."""
        return self._optional("key", row)

    @healing
    def source_id(self, row: int) -> str:
        """The id a row has in the system it was imported from; "" for none."""
        return self._optional("src_id", row)

    def _optional(self, name: str, row: int) -> str:
        return "" if self.sections.section(name) is None else self.string(name, row)

    @healing
    def timestamp(self, row: int) -> float:
        """Seconds since the epoch."""
        found: float = self.sections.value("time", row, 0.0)
        return found

    @healing
    def activation(self, row: int) -> float:
        """Activation weight of a row."""
        found: float = self.sections.value("act", row, 1.0)
        return found

    def ids_of(self, rows: Sequence[int]) -> list[int]:
        """The ids of some rows."""
        return self._values_of("id", rows) or list(rows)

    def activations_of(self, rows: Sequence[int]) -> list[float]:
        """The activation weights of some rows."""
        return self._values_of("act", rows) or [1.0] * len(rows)

    def session_codes_of(self, rows: Sequence[int]) -> list[int]:
        """The numbers of the (scope, session) of some rows."""
        return self._values_of("session", rows)

    def _values_of(self, name: str, rows: Sequence[int]) -> list[Any]:
        column = self.sections.column(name)
        return [] if column is None else [column[row] for row in rows]

    @healing
    def flags(self, row: int) -> int:
        """HAS_NO_VECTOR and IS_DELETED of a row."""
        found: int = self.sections.value("flags", row, 0)
        return found

    def deleted(self, row: int) -> bool:
        """Whether a row was deleted at the checkpoint."""
        return bool(self.flags(row) & form.IS_DELETED)

    @healing
    def scope(self, row: int) -> bytes:
        """Scope key of a row that belongs to an event; b"" for an ordinary one."""
        return self.scope_key(self.sections.value("scope", row, 0))

    @healing
    def scope_key(self, code: int) -> bytes:
        """The scope key of a scope number; b"" for 0."""
        return bytes(self.sections.values("scopes", 32 * code - 32, 32 * code)) if code else b""

    @healing
    def vector(self, row: int) -> bytes | None:
        """The stored vector of a row, or None if it has none."""
        return None if self.flags(row) & form.HAS_NO_VECTOR else self.stored_vector(row)

    @healing
    def stored_vector(self, row: int) -> bytes:
        """The stored bytes of a row's vector, from the HDF5 file or the copy in the index."""
        return self._stored_run(row, row + 1)

    def _stored_run(self, start: int, stop: int) -> bytes:
        """The stored bytes of rows start..stop of one chunk."""
        size = self.vector_bytes
        if self.sections.section("chunks") is None:
            return bytes(self.sections.values("exact", start * size, stop * size))
        offset = self.sections.value("chunks", start // form.CHUNK_ROWS, 0)
        data = fs.pread(self.h5_fd, (stop - start) * size, offset + start % form.CHUNK_ROWS * size)
        if len(data) != (stop - start) * size:
            raise UnusableIndex("the HDF5 file is shorter than the index says")
        return data

    def stored_vectors(self, rows: Sequence[int]) -> bytes:
        """The stored bytes of the vectors of some rows, one after the other; runs of rows are read at once."""
        parts = []
        at, count = 0, len(rows)
        while at < count:
            start = stop = rows[at]
            limit = min(start - start % form.CHUNK_ROWS + form.CHUNK_ROWS, start + count - at)
            while stop < limit and rows[at] == stop:
                at += 1
                stop += 1
                if at == count:
                    break
            parts.append(self._stored_run(start, stop))
        return b"".join(parts)

    @healing
    def record(self, row: int) -> Record:
        """The record at a row."""
        found = Record(
            self.id_at(row), self.text(row), self.timestamp(row), self.channel(row), self.session(row), self.tags(row)
        )
        found.key, found.source_id, found.scope = self.key(row), self.source_id(row), self.scope(row)
        found.vector, found.activation, found.deleted = self.vector(row), self.activation(row), self.deleted(row)
        return found

    @healing
    def records_of(self, start: int, stop: int) -> list[Record]:
        """The records of rows start..stop: as `record` gives them, read together."""
        sections, name = self.sections, self._name

        def column(section: str, default: Any) -> Sequence[Any]:
            if sections.section(section) is None:
                return [default] * (stop - start)
            return sections.values(section, start, stop).tolist()

        def texts(section: str) -> list[str]:
            if sections.section(section) is None:
                return [""] * (stop - start)
            ends = sections.values(f"{section}.o", start, stop + 1).tolist()
            data = bytes(sections.values(section, ends[0], ends[-1]))
            return [data[low - ends[0] : high - ends[0]].decode() for low, high in pairwise(ends)]

        ids = sections.values("id", start, stop).tolist() if sections.section("id") else range(start, stop)
        vectors, size = self.stored_vectors(range(start, stop)), self.vector_bytes
        found = []
        columns = zip(
            ids, texts("text"), column("time", 0.0), column("chan", 0), column("session", 0), column("tag", 0),
            texts("key"), texts("src_id"), column("scope", 0), column("act", 1.0), column("flags", 0), strict=True,
        )  # fmt: skip
        for at, (id, text, time, channel, session, tags, key, source_id, scope, weight, flags) in enumerate(columns):
            record = Record(id, text, time, name("chans", channel), name("ses", session), name("tags", tags))
            record.key, record.source_id, record.activation = key, source_id, weight
            record.scope = self.scope_key(scope) if scope else b""
            record.deleted = bool(flags & form.IS_DELETED)
            if not flags & form.HAS_NO_VECTOR:
                record.vector = vectors[at * size : at * size + size]
            found.append(record)
        return found

    @healing
    def shown(self, row: int) -> Record:
        """What a result page shows of the record at a row."""
        value, name = self.sections.value, self._name
        found = Record(
            value("id", row, row), self.string("text", row), value("time", row, 0.0),
            name("chans", value("chan", row, 0)), name("ses", value("session", row, 0)),
            name("tags", value("tag", row, 0)),
        )  # fmt: skip
        found.activation = value("act", row, 1.0)
        return found

    def small_vectors(self, start: int, stop: int) -> Any:
        """int8 vectors of rows start..stop as bytes, not checked: compare fingerprints (`fp`)."""
        section = self.sections.section("vec")
        if section is None:
            raise UnusableIndex("section vec is missing")
        first, size = section.offset + start * self.dim, (stop - start) * self.dim
        if self._fd >= 0 and section.length > MAPPED_VECTORS:
            data = fs.pread(self._fd, size, first)
            if len(data) != size:
                raise UnusableIndex("cut short")
            return data
        return self.sections.data[first : first + size]
