"""Builds the index of a checkpoint from its columns (docs/format.md § 6).

Invariants: the bytes depend on the columns alone; memory is bounded by one segment of postings and the numeric
columns, whatever the number of records: texts and vectors are read and written in blocks. Deleted rows are in the
file, but in no posting list, count, length or neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core.search import index_format as form
from clawmem_core.search.index_format import Header
from clawmem_core.search.index_postings import build_segments
from clawmem_core.search.index_writer import IndexFile, MemorySink
from clawmem_core.search.tokenizer import tokenizer
from clawmem_core.storage import row_ops
from clawmem_core.storage.columns import Columns, TextColumn

Array = npt.NDArray[Any]

BLOCK = 8192  # rows of vectors and texts handled at a time
IN_CACHE = 512  # rows of vectors worked on at a time
SAMPLED = 8192  # rows the scale of the int8 vectors is taken from
QUANTILE = 0.9999  # of the absolute values of normalised vectors; what is larger is clipped
LEAST_SQUARE, MOST_SQUARE = 1e-20, 1e30  # squared lengths that float32 holds well
EXACT_FLOAT32 = 1 << 24  # whole numbers below are exact in float32


def build_in_memory(columns: Columns) -> bytearray:
    """The index of `columns` as bytes. It is tied to no file: h5_size and h5_mtime_ns are 0."""
    sink = MemorySink()
    build(columns, IndexFile(sink), 0, 0)
    return sink.data


def build(columns: Columns, file: IndexFile, h5_size: int, h5_mtime_ns: int) -> None:
    """Write the index of `columns` to `file`; `h5_*`: size and modification time of the HDF5 file they stand in."""
    rows = Rows(columns)
    totals = Totals(columns.config.neighbour_weight)
    write_vectors(columns, file, rows.live, totals, scale_of(columns))
    write_texts(columns, file)
    lengths = np.zeros(columns.count, np.int64)
    tokens, neighbour = tokenizer(columns.config.tokenizer), columns.config.neighbour_weight
    build_segments(file, tokens, columns.chunks, rows, neighbour, lengths, rows.live)
    write_columns(columns, file, rows, lengths, totals)
    file.finish(header_of(columns, h5_size, h5_mtime_ns))


def header_of(columns: Columns, h5_size: int, h5_mtime_ns: int) -> Header:
    """The header of an index of these columns, without the places of its parts."""
    header = Header()
    header.store_id, header.checkpoint_id = columns.store_id, columns.checkpoint_id
    header.mark = (columns.mark.log_id, columns.mark.length, columns.mark.crc)
    header.flags = form.FLOAT16 if columns.config.float16 else 0
    header.h5_id_offset, header.h5_size, header.h5_mtime_ns = columns.checkpoint_id_offset, h5_size, h5_mtime_ns
    header.generation = columns.generation
    header.state = columns.log_state.ljust(104, b"\0")
    header.dim, header.rows = columns.config.dim, columns.count
    return header


class Totals:
    """Numbers over all live rows, gathered while the sections are written. `step`: value of 1 in an int8 vector."""

    def __init__(self, neighbour_weight: float) -> None:
        self.neighbour_weight = neighbour_weight
        self.live = self.lengths = self.neighbour_lengths = self.vectors = 0
        self.step = 1.0
        self.error_max = self.error_square = 0.0
        self.ascending_times = False
        self.shortest = 0  # least length of a live row

    def pack(self) -> bytes:
        """The `totals` section."""
        spread = (self.error_square / self.vectors) ** 0.5 if self.vectors else 0.0
        return form.TOTALS.pack(
            self.live, self.lengths, self.neighbour_lengths, self.vectors, self.step, self.error_max, spread,
            self.neighbour_weight, int(self.ascending_times), self.shortest,
        )  # fmt: skip


class Rows:
    """Which rows are live, and the neighbours within each (scope, session). -1: none."""

    def __init__(self, columns: Columns, sessions: Known | None = None) -> None:
        count = columns.count
        self.count = count
        self.live: Array = columns.tombstones == 0
        self.scopes = [b"", *sorted({key for key in columns.scopes().values() if key})]
        self.scope = scope_codes(columns, self.scopes)
        self.sessions, self.session = session_codes(columns.session_ids, self.scope, len(self.scopes), sessions)
        self.order, self.starts = grouped(self.session, self.live, len(self.sessions))
        self.previous: Array = np.full(count, -1, np.int32)
        self.following: Array = np.full(count, -1, np.int32)
        named = np.array([bool(name) for name, _ in self.sessions], bool)
        before, after = self.order[:-1], self.order[1:]
        same = (self.session[before] == self.session[after]) & named[self.session[before]]
        self.following[before[same]] = after[same]
        self.previous[after[same]] = before[same]


def scope_codes(columns: Columns, scopes: Sequence[bytes]) -> Array:
    """Index into `scopes` per row."""
    codes = np.zeros(columns.count, np.uint32)
    if len(scopes) > 1:
        index = {key: code for code, key in enumerate(scopes)}
        keyed = columns.scopes()
        ids = np.fromiter(keyed, np.int64, len(keyed))
        rows = np.searchsorted(columns.ids, ids)
        found = rows < columns.count
        found[found] = columns.ids[rows[found]] == ids[found]
        values = np.fromiter((index[key] for key in keyed.values()), np.uint32, len(keyed))
        codes[rows[found]] = values[found]
    return codes


class _Codes(dict[bytes, int]):
    """Value -> number in order of first appearance."""

    def __missing__(self, value: bytes) -> int:
        code = self[value] = len(self)
        return code


class Known:
    """A text column as an earlier index has it: its strings, the number of each row's string, rows that changed."""

    def __init__(self, strings: list[bytes], codes: Array, changed: Array) -> None:
        self.strings, self.codes, self.changed = strings, codes, changed


def text_codes(column: TextColumn, known: Known | None = None) -> tuple[list[bytes], Array]:
    """The distinct texts of a column in order of first appearance, and the index into them per row."""
    table = _Codes()
    codes = np.empty(len(column), np.uint32)
    first = 0
    if known is not None:
        first = len(known.codes)
        numbers = np.fromiter(map(table.__getitem__, known.strings), np.uint32, len(known.strings))
        codes[:first] = numbers[known.codes]
        for row in known.changed.tolist():
            codes[row] = table[column.read(row, row + 1)[0]]
    for start in range(first, len(column), BLOCK):
        block = column.read(start, start + BLOCK)
        codes[start : start + len(block)] = np.fromiter(map(table.__getitem__, block), np.uint32, len(block))
    return list(table), codes


def session_codes(
    column: TextColumn, scope: Array, scopes: int, known: Known | None
) -> tuple[list[tuple[bytes, int]], Array]:
    """The distinct (session, scope code) in byte order of the session, and the index into them per row."""
    names, codes = text_codes(column, known)
    pairs = codes.astype(np.int64) * scopes + scope
    distinct = sorted_distinct(pairs)
    keys = [(names[pair // scopes], pair % scopes) for pair in distinct.tolist()]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    place = np.empty(len(keys), np.uint32)
    place[order] = np.arange(len(keys), dtype=np.uint32)
    return [keys[at] for at in order], place[np.searchsorted(distinct, pairs)]


def sorted_distinct(values: Array) -> Array:
    """Distinct values in ascending order (np.unique would import numpy.ma)."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def grouped(codes: Array, live: Array, count: int) -> tuple[Array, Array]:
    """Live rows ordered by code, then row, and where each code's rows start, [count + 1]."""
    rows = np.flatnonzero(live)
    order = rows[np.argsort(codes[rows], kind="stable")].astype(np.int32)
    return order, np.searchsorted(codes[order], np.arange(count + 1)).astype(np.uint32)


# ---------------------------------------------------------------- vectors


def scale_of(columns: Columns) -> float:
    """What one step of the int8 vectors is worth: 1/127 of the QUANTILE of |x| over a sample of normalised vectors."""
    count = columns.count
    blocks = max(1, SAMPLED // 1024)
    starts = range(0, count, 1024)
    chosen = starts if len(starts) <= blocks else [starts[at * len(starts) // blocks] for at in range(blocks)]
    peaks = []
    for start in chosen:
        stop = min(start + 1024, count)
        with_vector = columns.norms[start:stop] > 0
        if with_vector.any():
            peaks.append(np.abs(normalised(columns.embeddings.read(start, stop)[with_vector])).ravel())
    if not peaks:
        return 1.0
    values = np.concatenate(peaks)
    at = min(len(values) - 1, int(len(values) * QUANTILE))
    return float(np.partition(values, at)[at]) / 127 or 1.0


def normalised(vectors: Array) -> Array:
    """Rows of unit length as float32; a row of zeros stays."""
    wide = vectors.astype(np.float32)
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", wide, wide)
    if len(squares) and not (squares.min() > LEAST_SQUARE and squares.max() < MOST_SQUARE):
        peak = np.abs(wide).max(axis=1, keepdims=True)
        peak[peak == 0] = 1.0
        wide /= peak  # squares of float32 values may leave its range
        squares = np.einsum("ij,ij->i", wide, wide)
    wide *= (1.0 / np.sqrt(squares.clip(1e-30)))[:, None]
    return wide


def fingerprints(small: Array) -> Array:
    """Product of each row of int8 values, in any type, with the fixed odd row, int32."""
    dim = small.shape[1]
    odd = np.frombuffer(form.fingerprint_row(dim), np.int8)
    kind = np.float32 if dim * 127 * 127 < EXACT_FLOAT32 else np.float64
    prints: Array = (small.astype(kind, copy=False) @ odd.astype(kind)).astype(np.int32)
    return prints


def quantised(vectors: Array, step: float, totals: Totals) -> Array:
    """Rows as int8 multiples of `step` of their unit vectors, as float32; adds the error to the totals."""
    unit = normalised(vectors)
    small: Array = unit * np.float32(1.0 / step)
    np.rint(small, out=small)
    np.clip(small, -127, 127, out=small)
    unit -= small * np.float32(step)
    errors = np.einsum("ij,ij->i", unit, unit)
    totals.error_square += float(errors.sum(dtype=np.float64))
    if len(errors):
        totals.error_max = max(totals.error_max, float(errors.max()) ** 0.5)
    return small


def write_vectors(columns: Columns, file: IndexFile, live: Array, totals: Totals, step: float) -> None:
    """Sections `vec`, `fp`, and `exact` where the stored vectors cannot be read by offset."""
    totals.step = step
    with_vector = (columns.norms > 0) & live
    totals.vectors = int(np.count_nonzero(with_vector))
    if not totals.vectors:
        return
    dim = columns.config.dim
    prints = np.zeros(columns.count, np.int32)
    with file.section("vec"):
        for start in range(0, columns.count, BLOCK):
            block = columns.embeddings.read(start, start + BLOCK)
            for low in range(0, len(block), IN_CACHE):
                part, first = block[low : low + IN_CACHE], start + low
                chosen = with_vector[first : first + len(part)]
                if chosen.all():
                    small = quantised(part, step, totals)
                else:
                    small = np.zeros((len(part), dim), np.float32)
                    small[chosen] = quantised(part[chosen], step, totals)
                prints[first : first + len(part)] = fingerprints(small)
                file.write(small.astype(np.int8))
    file.put("fp", prints)


def write_exact(columns: Columns, file: IndexFile) -> None:
    """Where the stored vectors are: chunk offsets of the HDF5 file, or a copy of them in section `exact`."""
    if columns.embedding_offsets is not None:
        file.put("chunks", np.array(columns.embedding_offsets, np.uint64))
    elif columns.norms.any():
        with file.section("exact"):
            for start in range(0, columns.count, BLOCK):
                file.write(columns.embeddings.read(start, start + BLOCK).tobytes())


# ---------------------------------------------------------------- texts and columns


def write_texts(columns: Columns, file: IndexFile) -> None:
    """The texts and where each starts."""
    write_blob(file, "text", columns.chunks)
    for name, column in (("key", columns.keys), ("src_id", columns.source_ids)):
        if any(any(column.read(start, start + BLOCK)) for start in range(0, len(column), BLOCK)):
            write_blob(file, name, column)


def write_blob(file: IndexFile, name: str, column: TextColumn) -> None:
    """A text section and `<name>.o`, the offsets [N + 1]."""
    offsets = np.zeros(len(column) + 1, np.uint64)
    with file.section(name):
        for start in range(0, len(column), BLOCK):
            block = column.read(start, start + BLOCK)
            ends = np.cumsum(np.fromiter(map(len, block), np.uint64, len(block)))
            offsets[start + 1 : start + 1 + len(block)] = offsets[start] + ends
            file.write(b"".join(block))
    file.put(f"{name}.o", narrow(offsets, 4))


def write_strings(file: IndexFile, name: str, strings: Iterable[bytes]) -> None:
    """A table of strings: `<name>` and offsets `<name>.o`."""
    values = list(strings)
    offsets = np.zeros(len(values) + 1, np.uint64)
    offsets[1:] = np.cumsum(np.fromiter(map(len, values), np.uint64, len(values)))
    file.put(name, b"".join(values))
    file.put(f"{name}.o", narrow(offsets, 4))


def narrow(values: Array, least: int = 1) -> Array:
    """Unsigned numbers in the narrowest type of at least `least` bytes that holds them."""
    top = int(values.max()) if len(values) else 0
    for size, kind in ((1, np.uint8), (2, np.uint16), (4, np.uint32)):
        if size >= least and top < 1 << (8 * size):
            return values.astype(kind)
    return values.astype(np.uint64)


def write_columns(
    columns: Columns,
    file: IndexFile,
    rows: Rows,
    lengths: Array,
    totals: Totals,
    known: Mapping[str, Known] | None = None,
) -> None:
    """Everything that is neither vector, text nor posting. `known`: by column name, from an earlier index."""
    write_exact(columns, file)
    write_crossings(file, rows)
    around = np.append(lengths, 0)
    neighbour_lengths = around[rows.previous] + around[rows.following]
    totals.live = int(np.count_nonzero(rows.live))
    totals.lengths, totals.neighbour_lengths = int(lengths.sum()), int(neighbour_lengths.sum())
    totals.shortest = int(lengths[rows.live].min()) if totals.live else 0
    totals.ascending_times = bool((columns.timestamps[1:] >= columns.timestamps[:-1]).all())
    file.put("dl", narrow(lengths))
    file.put("ndl", narrow(neighbour_lengths))
    file.put("prev", rows.previous)
    file.put("next", rows.following)
    write_strings(file, "ses", (name for name, _ in rows.sessions))
    put(file, "sescope", narrow(np.array([scope for _, scope in rows.sessions], np.uint32)), 0)
    file.put("session", narrow(rows.session))
    file.put("sesrow", rows.order)
    file.put("sesoff", rows.starts)
    file.put("scopes", b"".join(rows.scopes[1:]))
    put(file, "scope", narrow(rows.scope), 0)
    if not np.array_equal(columns.ids, np.arange(columns.count)):
        file.put("id", columns.ids.astype(np.int64))
    file.put("time", columns.timestamps.astype(np.float64))
    put(file, "act", columns.activation.astype(np.float32), 1.0)
    flags = np.where(columns.norms > 0, 0, form.HAS_NO_VECTOR) | np.where(rows.live, 0, form.IS_DELETED)
    file.put("norm", columns.norms.astype(np.float32))
    put(file, "flags", flags.astype(np.uint8), 0)
    for name, column in (("chan", columns.source_channel), ("tag", columns.tags)):
        strings, codes = text_codes(column, known[name] if known is not None else None)
        write_strings(file, f"{name}s", strings)
        put(file, name, narrow(codes), 0)
    write_tables(columns, file)
    file.put("settings", form.pack_settings(columns.config))
    file.put("totals", totals.pack())


def write_crossings(file: IndexFile, rows: Rows) -> None:
    """For each segment with head tables: the rows outside it that have a neighbour inside it."""
    for segment, (low, high) in file.head_ranges.items():
        beside = np.zeros(rows.count, bool)
        for near in (rows.previous, rows.following):
            beside |= (near >= low) & (near < high)
        beside[low:high] = False
        crossing = np.flatnonzero(beside)
        if len(crossing):
            file.put("cross", crossing.astype(np.uint32), segment)


def put(file: IndexFile, name: str, values: Array, default: float) -> None:
    """A column, unless it holds nothing but its default."""
    if (values != default).any():
        file.put(name, values)


def write_tables(columns: Columns, file: IndexFile) -> None:
    """Sessions, graph, events and value tombstones as operations (storage/row_ops.py), events and values by scope."""
    tables: tuple[tuple[str, Callable[[Any], bytes], Sequence[Any]], ...] = (
        ("sesrows", row_ops.session, columns.session_rows),
        ("entities", row_ops.entity, columns.entity_rows),
        ("rels", row_ops.relation, columns.relation_rows),
        ("aliases", row_ops.alias, columns.alias_rows),
    )
    for name, encode, table in tables:
        if table:
            file.put(name, b"".join(map(encode, table)))
    if columns.events:
        write_by_scope(file, "events", [(row.scope_key, row_ops.event(row)) for row in columns.events])
    if columns.values:
        write_by_scope(file, "values", [(row.scope_key, row_ops.value(row)) for row in columns.values])


def write_by_scope(file: IndexFile, name: str, encoded: list[tuple[bytes, bytes]]) -> None:
    """Operations grouped by scope key, and `<name>.s`: scope key[32], u64 offset, ascending, with a last offset."""
    encoded.sort(key=lambda pair: pair[0])
    index: list[bytes] = []
    at, last = 0, None
    with file.section(name):
        for scope, data in encoded:
            if scope != last:
                index.append(scope.ljust(32, b"\0") + at.to_bytes(8, "little"))
                last = scope
            file.write(data)
            at += len(data)
    file.put(f"{name}.s", b"".join(index) + b"\xff" * 32 + at.to_bytes(8, "little"))
