"""Random databases: what is accepted equals the source, and the report names exactly the rows that are refused."""

from __future__ import annotations

import itertools
import math
import struct

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawmem_migrate import mapping
from clawmem_migrate.refusals import Refusals
from clawmem_migrate.rows import RowIndex, RowReader

DIM = 2
ids = st.one_of(st.integers(-5, 5), st.integers(-5, 5), st.none(), st.just("x"), st.floats(0, 3))
texts = st.one_of(
    st.text(max_size=8), st.text(max_size=8), st.none(), st.just("a\0"), st.binary(max_size=2), st.just(5)
)  # fmt: skip
numbers = st.one_of(st.floats(width=32), st.sampled_from([0.0, 1.0, 65504.0, 65505.0, 1e-9]))
vectors = st.one_of(
    st.lists(numbers, min_size=DIM, max_size=DIM).map(lambda values: struct.pack(f"<{DIM}f", *values)),
    st.binary(max_size=12),
    st.none(),
    st.just("text"),
)
times = st.one_of(st.floats(), st.integers(-(1 << 62), 1 << 62), st.none(), st.just("now"))
flags = st.one_of(st.sampled_from([0, 0, 1]), st.sampled_from([2, None, 0.0, "0"]))
rows = st.tuples(ids, texts, vectors, texts, times, texts, texts, flags)


def _text_is_good(value, *, null=True, empty=True):
    if value is None:
        return null
    return isinstance(value, str) and "\0" not in value and (empty or value != "")


def _is_good(row, float16):
    """The rules of docs/migrate.md, written down once more without any speed."""
    _, chunk, blob, channel, time, session, tags, deleted = row
    good = _text_is_good(chunk, null=False, empty=False) and all(map(_text_is_good, (channel, session, tags)))
    good = good and type(time) in (int, float) and math.isfinite(time) and abs(time) <= 1e11
    good = good and type(deleted) is int and deleted in (0, 1)
    if not good or type(blob) is not bytes or len(blob) != 4 * DIM:
        return False
    values = struct.unpack(f"<{DIM}f", blob)
    if not all(map(math.isfinite, values)) or (float16 and max(map(abs, values)) > 65504):
        return False
    stored = struct.unpack(f"<{DIM}e", struct.pack(f"<{DIM}e", *values)) if float16 else values
    return any(stored)


def _sqlite_order(row):
    """NULL, then numbers, then texts."""
    return (0, 0) if row[0] is None else (1, row[0]) if isinstance(row[0], int | float) else (2, row[0])


def _model(found, float16, skip_deleted):
    """Accepted and refused rows by place."""
    accepted, refused, last, kind = [], [], None, None
    for place, row in enumerate(found):
        id = row[0]
        id_good = type(id) in (int, str) and (kind is None or type(id) is kind)
        if id_good:
            kind = kind or type(id)
            if id == last:
                id_good = False
            last = id
        left_out = skip_deleted and type(row[7]) is int and row[7] == 1
        if id_good and left_out:
            continue
        (accepted if id_good and _is_good(row, float16) else refused).append(place)
    return accepted, refused


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(rows, max_size=12), st.booleans(), st.booleans(), st.integers(1, 5))
def test_rows_are_accepted_whole_or_refused_by_name(found, float16, skip_deleted, copies):
    """Any mix of storage classes, NULLs, duplicates and deletions, in batches and row by row."""
    found = sorted(itertools.chain.from_iterable(itertools.repeat(found, copies)), key=_sqlite_order)
    accepted, refused = _model(found, float16, skip_deleted)
    with Refusals() as refusals:
        index = RowIndex()
        reader = RowReader(
            mapping.shipped("clawhdf5"), float16=float16, dim=DIM, skip_deleted=skip_deleted, refusals=refusals,
            index=index,
        )  # fmt: skip
        got = [
            batch.row(at) | {"id": batch.source_ids[at]}
            for batch in reader.batches(iter(found))
            for at in range(len(batch))
        ]
        assert [str(found[place][0]) for place in accepted] == [row["id"] for row in got]
        for place, row in zip(accepted, got, strict=True):
            _, chunk, blob, channel, time, session, tags, deleted = found[place]
            wanted = struct.pack(f"<{DIM}e", *struct.unpack(f"<{DIM}f", blob)) if float16 else blob
            assert (chunk, channel or "", session or "", tags or "", float(time), bool(deleted), wanted) == (
                row["chunk"], row["source_channel"], row["session_id"], row["tags"], row["timestamp"], row["deleted"],
                row["embedding"],
            )  # fmt: skip
        named = [found[place][0] if type(found[place][0]) in (int, str) else None for place in refused]
        assert len(refused) == refusals.rows
        assert named == [row for row, _ in itertools.groupby(_rows_of(refusals))] or len(set(named)) < len(named)
        assert len(found) == reader.total == len(accepted) + refusals.rows + reader.left_out


def _rows_of(refusals):
    return [document["row"] for document in refusals.documents()]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(rows.filter(lambda row: type(row[0]) is int), max_size=8, unique_by=lambda row: row[0]))
def test_whole_databases(tmp_path_factory, make, migrate, records_of, found):
    """Through the command: the store gives back the good rows and the report names the others."""
    folder = tmp_path_factory.mktemp("random")
    columns = ("id", "chunk", "embedding", "source_channel", "timestamp", "session_id", "tags", "deleted")
    source = make.rows(
        folder / "a.db",
        [],
        f"CREATE TABLE any_({', '.join(columns)});",
    )
    for row in found:
        make.script(source, f"INSERT INTO any_ VALUES({', '.join('?' * 8)})", *row)
    answer = migrate(
        "--sqlite", source, "--hdf5", folder / "m.h5", "--chunks-table", "any_", "--skip-invalid", "--f32",
        "--embedding-dim", DIM,
    )  # fmt: skip
    # SQLite keeps NaN as NULL, so what is in the file decides
    stored = sorted(((*row[:4], None if row[4] != row[4] else row[4], *row[5:]) for row in found), key=_sqlite_order)
    accepted, refused = _model(stored, False, False)
    assert (3 if refused else 0) == answer.code, answer
    assert {stored[place][0] for place in refused} == {problem["row"] for problem in answer.report["problems"]}
    assert [str(stored[place][0]) for place in accepted] == [record.source_id for record in records_of(folder / "m.h5")]
    words = ("--check", "--skip-invalid", "--sqlite", source, "--hdf5", folder / "m.h5", "--chunks-table", "any_")
    check = migrate(*words)
    assert (3 if refused else 0) == check.code, check
