"""Brings an index forward to the next checkpoint without building it anew (format.md § 6).

New records become a segment of their own; replaced and undeleted ones share one segment of scattered rows; lists lose
the rows that were deleted or replaced; columns are recomputed. Segments of similar size are merged, so that there are
few and each row is tokenised again only a few times.

Invariants: the new index answers every search as a freshly built one would; pages that did not change are copied with
their checksums, once these hold, so damage in the old index ends at the next checkpoint. Where the old index does not
fit or is damaged, or a rebuild is cheaper, the index is built anew.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from clawmem_core.search import index_format as form
from clawmem_core.search.index_build import (
    Known,
    Rows,
    Totals,
    build,
    fingerprints,
    header_of,
    quantised,
    write_columns,
    write_texts,
)
from clawmem_core.search.index_format import UnusableIndex
from clawmem_core.search.index_postings import (
    SEGMENT_ROWS,
    build_segments,
    write_lists,
    write_scattered,
)
from clawmem_core.search.index_reader import IndexReader
from clawmem_core.search.index_segment import Segment
from clawmem_core.search.index_writer import FileSink, IndexFile, commit
from clawmem_core.search.tokenizer import tokenizer
from clawmem_core.storage import fs
from clawmem_core.storage.atomic import AtomicFile
from clawmem_core.storage.columns import Columns

Array = npt.NDArray[Any]

LEAST_ROWS = 2048  # of an old index that is worth bringing forward
SCATTERED_SHARE = 20  # more than one row in so many replaced, deleted or brought back: build anew
SCATTERED_FREE = 200  # but so many always fit
FAN = 8  # segments of one size before they are merged
LEVEL_ROWS = 1024  # rows of the smallest size; the next is FAN times that


def write_index(
    path: str, columns: Columns, store: os.stat_result, before: tuple[bytes, Collection[int]] | None = None
) -> bool:
    """Write the index of `columns` to `path`; returns whether the one that is there could be brought forward.

    `store`: status of the HDF5 file. `before`: checkpoint id of the previous state, and the ids of the records put
    since (new and replaced ones). Raises StorageError.
    """
    if before is not None:
        try:
            if _brought_forward(path, columns, store, *before):
                return True
        except UnusableIndex:
            pass  # the old one is damaged or of another state: nothing of it is used
    with AtomicFile(path, store) as file:
        build(columns, IndexFile(FileSink(file)), store.st_size, store.st_mtime_ns)
        commit(file)
    return False


def _brought_forward(
    path: str, columns: Columns, store: os.stat_result, checkpoint_id: bytes, put: Collection[int]
) -> bool:
    fd = fs.open_existing(path)
    if fd is None:
        return False
    try:
        old = IndexReader.of_file(fd)
    except BaseException:
        fs.close(fd)
        raise
    try:
        if old.checkpoint_id != checkpoint_id or not fits(old, columns):
            return False
        with AtomicFile(path, store) as file:
            if not update(old, columns, put, IndexFile(FileSink(file)), store.st_size, store.st_mtime_ns):
                return False
            commit(file)
            return True
    finally:
        old.close()


def fits(old: IndexReader, columns: Columns) -> bool:
    """Whether an index is of an earlier state of this store whose rows are all still there, and worth keeping."""
    config = columns.config
    return (
        old.store_id == columns.store_id
        and LEAST_ROWS <= old.count <= columns.count <= 2 * old.count
        and (old.dim, old.float16, old.vectors > 0) == (config.dim, config.float16, True)
        and old.config["tokenizer"] == config.tokenizer
        and old.neighbour_weight == config.neighbour_weight
        and columns.embedding_offsets is not None
        and np.array_equal(_ids(old), columns.ids[: old.count])
    )


def _column(old: IndexReader, name: str, dtype: Any, default: Any) -> Array:
    column = old.sections.column(name)
    if column is None:
        return np.full(old.count, default, dtype)
    return np.asarray(column).astype(dtype)


def _ids(old: IndexReader) -> Array:
    return np.arange(old.count) if old.sections.section("id") is None else _column(old, "id", np.int64, 0)


#: columns that are kept as numbers of strings: column, string table
_CODED = (("session", "session", "ses"), ("chan", "chan", "chans"), ("tag", "tag", "tags"))


def replaced_rows(old: IndexReader, ids: Array, put: Collection[int]) -> Array:
    """Rows of the old index that were put again, ascending."""
    rows = np.searchsorted(ids, np.sort(np.fromiter(put, np.int64, len(put))))
    return rows[rows < old.count]


def known_texts(old: IndexReader, changed: Array) -> dict[str, Known]:
    """The columns of an index that are kept as numbers of strings, by name; `changed`: rows that are others now."""
    return {name: _known(old, column, table, changed) for name, column, table in _CODED}


def _known(old: IndexReader, column: str, table: str, changed: Array) -> Known:
    """A text column of the old index."""
    offsets = old.sections.column(f"{table}.o")
    ends = offsets.tolist() if offsets is not None else [0]
    blob = bytes(old.sections.blob(table))
    strings = [blob[start:stop] for start, stop in pairwise(ends)]
    return Known(strings, _column(old, column, np.uint32, 0), changed)


class Change:
    """What happened to the rows of an index. All arrays are ascending rows.

    `gone`: were live and lost their old words; `scattered`: live rows whose words belong into the scattered segment.
    `fresh`: rows of the old index whose vector has to be written again.
    """

    def __init__(self, old: IndexReader, rows: Rows, replaced_rows: Array) -> None:
        self.count = old.count
        flags = _column(old, "flags", np.uint8, 0)
        was_live = (flags & form.IS_DELETED) == 0
        is_live = rows.live[: old.count]
        replaced = np.zeros(old.count, bool)
        replaced[replaced_rows] = True
        self.gone = np.flatnonzero(was_live & (replaced | ~is_live))
        self.fresh = np.flatnonzero(is_live & (replaced | ~was_live))
        self.replaced_texts = bool(replaced.any())
        owned = _owned(old)
        chosen = np.zeros(old.count, bool)
        chosen[owned] = True
        chosen[self.fresh] = True
        self.scattered = np.flatnonzero(chosen & is_live)

    @property
    def small(self) -> bool:
        """Whether so little changed that bringing the index forward is cheaper than building it."""
        most = max(SCATTERED_FREE, self.count // SCATTERED_SHARE)
        return len(self.scattered) <= most and len(self.gone) <= most


def _owned(old: IndexReader) -> Array:
    """Rows of the scattered segment."""
    numbers = [segment.number for segment in old.segments if _scattered(segment)]
    parts = [np.asarray(old.sections.column("owned", number)) for number in numbers]
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


def _scattered(segment: Segment) -> bool:
    return segment.sections.section("owned", segment.number) is not None


def update(
    old: IndexReader, columns: Columns, put: Collection[int], file: IndexFile, h5_size: int, h5_mtime_ns: int
) -> bool:
    """Write the index of `columns` to `file` from an earlier one that `fits`; False where a rebuild is better.

    Raises UnusableIndex where the old index is damaged.
    """
    replaced = replaced_rows(old, columns.ids, put)
    known = known_texts(old, replaced)
    rows = Rows(columns, known["session"])
    change = Change(old, rows, replaced)
    if not change.small:
        return False
    totals = Totals(columns.config.neighbour_weight)
    _vectors(old, columns, rows, change, file, totals)
    _texts(old, columns, change, file)
    lengths = np.zeros(columns.count, np.int64)
    lengths[: old.count] = _column(old, "dl", np.int64, 0)
    lengths[change.gone] = 0
    _segments(old, columns, rows, change, file, lengths)
    write_columns(columns, file, rows, lengths, totals, known)
    file.finish(header_of(columns, h5_size, h5_mtime_ns))
    return True


def _vectors(old: IndexReader, columns: Columns, rows: Rows, change: Change, file: IndexFile, totals: Totals) -> None:
    """Old int8 vectors, those of fresh rows replaced, those of new rows added."""
    dim = columns.config.dim
    has_vector = (columns.norms > 0) & rows.live
    totals.step = old.step
    totals.vectors = int(np.count_nonzero(has_vector))
    totals.error_max, totals.error_square = old.error_max, old.error_spread**2 * old.vectors
    prints = np.zeros(columns.count, np.int32)
    prints[: old.count] = _column(old, "fp", np.int32, 0)
    patches = {}
    for row in change.fresh.tolist():
        small = np.zeros((1, dim), np.int8)
        if has_vector[row]:
            small = quantised(columns.embeddings.read(row, row + 1), old.step, totals).astype(np.int8)
        patches[row * dim] = small.tobytes()
        prints[row] = fingerprints(small)[0]
    added = np.zeros((columns.count - old.count, dim), np.int8)
    chosen = has_vector[old.count :]
    if chosen.any():
        added[chosen] = quantised(columns.embeddings.read(old.count, columns.count)[chosen], old.step, totals)
        prints[old.count :] = fingerprints(added)
    with file.section("vec"):
        file.copy(old, "vec", 0, patches)
        file.write(added.tobytes())
    file.put("fp", prints)


def _texts(old: IndexReader, columns: Columns, change: Change, file: IndexFile) -> None:
    """Old texts and the new ones after them; all anew where one was replaced or other text columns are there."""
    sections = old.sections
    if change.replaced_texts or not _blank(columns, old):
        write_texts(columns, file)
        return
    added = columns.chunks.read(old.count, columns.count)
    with file.section("text"):
        file.copy(old, "text")
        file.write(b"".join(added))
    offsets = np.zeros(columns.count + 1, np.uint64)
    column = sections.column("text.o")
    offsets[: old.count + 1] = np.asarray(column)
    sizes = np.fromiter(map(len, added), np.uint64, len(added))
    offsets[old.count + 1 :] = offsets[old.count] + np.cumsum(sizes)
    file.put("text.o", offsets.astype(np.uint32 if int(offsets[-1]) < 1 << 32 else np.uint64))


def _blank(columns: Columns, old: IndexReader) -> bool:
    """Whether neither the old rows nor the new ones have keys or source ids."""
    if any(old.sections.section(name) is not None for name in ("key", "src_id")):
        return False
    return not any(any(column.read(old.count, columns.count)) for column in (columns.keys, columns.source_ids))


# ---------------------------------------------------------------- segments


def _segments(old: IndexReader, columns: Columns, rows: Rows, change: Change, file: IndexFile, lengths: Array) -> None:
    """Kept segments, then the scattered one, then one of the new rows and of those merged with them."""
    tokens, config = tokenizer(columns.config.tokenizer), columns.config
    ranges = [segment for segment in old.segments if not _scattered(segment)]
    low, merged = merge_from([(segment.low, segment.high) for segment in ranges], columns.count)
    gone = np.zeros(columns.count, bool)
    gone[change.gone] = True
    with_heads: list[tuple[int, Segment]] = []
    for segment in ranges[: len(ranges) - merged]:
        _copy_segment(old, segment, gone, file)
        if segment.head_count:
            with_heads.append((file.segments, segment))
    wanted = rows.live.copy()
    wanted[change.scattered] = False
    if len(change.scattered):
        write_scattered(file, tokens, columns.chunks, change.scattered, lengths)
    if low < columns.count:
        build_segments(file, tokens, columns.chunks, rows, config.neighbour_weight, lengths, wanted, low)
    for number, segment in with_heads:
        file.head_ranges[number] = (segment.low, segment.high)
        with file.section("himp", number):
            file.copy(old, "himp", segment.number, _looser(old, segment, rows, lengths))


def merge_from(ranges: list[tuple[int, int]], count: int) -> tuple[int, int]:
    """Where the segment of the new rows begins, and how many of the old segments, from the end, go into it.

    FAN segments of one size at the end become one, as long as that stays within SEGMENT_ROWS.
    """
    start = ranges[-1][1] if ranges else 0
    merged = 0
    while len(ranges) - merged >= FAN - 1:
        last = ranges[len(ranges) - merged - FAN + 1 : len(ranges) - merged]
        size = level(count - start)
        if any(level(high - low) > size for low, high in last) or count - last[0][0] > SEGMENT_ROWS:
            break
        start, merged = last[0][0], merged + FAN - 1
    return start, merged


def level(rows: int) -> int:
    """The size class of a segment."""
    found = 0
    while rows > LEVEL_ROWS:
        rows //= FAN
        found += 1
    return found


def _copy_segment(old: IndexReader, segment: Segment, gone: Array, file: IndexFile) -> None:
    """Everything but the bounds of a segment, without the rows that are gone."""
    file.segments += 1
    number = file.segments
    lists = ["starts", "rows", "tf", "tfx"]
    if gone.any():
        _thinned_lists(old, segment, gone, file)
        lists = []
    for name in ("words", "words.o", *lists, "segment"):
        _copy(old, name, segment, file)
    if not segment.head_count:
        return
    lost = np.flatnonzero(gone[segment.low : segment.high])
    heads = np.asarray(old.sections.column("heads", segment.number)).reshape(-1, 2).astype(np.uint32)
    patches: dict[int, bytes] = {}
    size = segment.high - segment.low
    for place in range(segment.head_count) if len(lost) else ():
        own = np.frombuffer(segment.head_frequencies(place), np.uint8)
        held = lost[own[lost] > 0]
        heads[place, 1] -= len(held)
        patches.update((place * size + int(at), b"\0") for at in held)
    file.put("heads", heads, number)
    with file.section("htf", number):
        file.copy(old, "htf", segment.number, patches)


def _copy(old: IndexReader, name: str, segment: Segment, file: IndexFile) -> None:
    """A section as it is."""
    if old.sections.section(name, segment.number) is None:
        return
    if name in form.PAGED:
        with file.section(name, file.segments):
            file.copy(old, name, segment.number)
    else:
        file.put(name, np.asarray(old.sections.column(name, segment.number)), file.segments)


def _thinned_lists(old: IndexReader, segment: Segment, gone: Array, file: IndexFile) -> None:
    """The lists of a segment without the rows that are gone."""
    sections, number = old.sections, segment.number
    rows = np.asarray(sections.column("rows", number))
    frequencies = np.asarray(sections.column("tf", number)).astype(np.int64)
    large = sections.column("tfx", number)
    if large is not None:
        pairs = np.asarray(large).reshape(-1, 2)
        frequencies[pairs[:, 0]] = pairs[:, 1]
    starts = np.asarray(sections.column("starts", number)).astype(np.int64)
    kept = ~gone[rows]
    before = np.concatenate([[0], np.cumsum(kept)])
    counts = np.diff(before[starts])
    write_lists(file, file.segments, counts, rows[kept], frequencies[kept])


def _looser(old: IndexReader, segment: Segment, rows: Rows, lengths: Array) -> dict[int, bytes]:
    """Bounds that hold no more are set to the maximum.

    These are of rows that became shorter with their neighbours, or have another neighbour inside the segment.
    """
    low, high = segment.low, segment.high
    around = np.append(lengths, 0)
    changed = np.zeros(high - low, bool)
    length_before = _column(old, "dl", np.int64, 0)[low:high]
    near_before = _column(old, "ndl", np.int64, 0)[low:high]
    near = around[rows.previous[low:high]] + around[rows.following[low:high]]
    changed |= (lengths[low:high] < length_before) | (near < near_before)
    for name, now in (("prev", rows.previous), ("next", rows.following)):
        here = now[low:high]
        changed |= (here != _column(old, name, np.int32, -1)[low:high]) & (here >= low) & (here < high)
    return {int(row) * segment.head_count: b"\x7f" * segment.head_count for row in np.flatnonzero(changed)}
