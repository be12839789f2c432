"""Every change at rest is found and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from clawmem_core.integrity.check import Check, check_file
from clawmem_core.integrity.content import Findings
from clawmem_core.integrity.keys import SecretKey
from clawmem_core.integrity.signing import Signing
from clawmem_core.storage.row_ops import Alias, Entity, Session
from tests.core.integrity.samples import columns, secret_key, write_store
from tests.core.integrity.tampering import EDITS, Edit, rearrange, set_row

Apply = Callable[[Edit], None]


def check(path: str, key: SecretKey) -> tuple[Check, Findings]:
    """What is found in a store file."""
    findings = Findings()
    with h5py.File(path, locking=False) as file:
        return check_file(file, key.public, findings), findings


def codes(findings: Findings) -> set[str]:
    """Codes of the errors."""
    return {item["code"] for item in findings.items if item["severity"] == "error"}


def test_clean(store: str, key: SecretKey) -> None:
    """Nothing is found in a store as it was signed; every record was looked at."""
    found, findings = check(store, key)
    assert [] == findings.items
    assert found.rows is not None and 20 == len(found.rows.ids)


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 1030])
@pytest.mark.parametrize("float16", [True, False])
def test_clean_at_any_size(tmp_path: Path, key: SecretKey, count: int, float16: bool) -> None:
    """Empty stores, block boundaries, both precisions."""
    path = str(tmp_path / "m.h5")
    write_store(path, columns(count, float16=float16), Signing(key))
    assert [] == check(path, key)[1].items


def test_opening_and_closing_changes_nothing(store: str, key: SecretKey) -> None:
    """A no-op edit by h5py still verifies."""
    with h5py.File(store, "r+", locking=False):
        pass
    assert [] == check(store, key)[1].items


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_is_found_and_named(store: str, key: SecretKey, edit: Apply, name: str) -> None:
    """The at-rest matrix by h5py."""
    change, code, ids = EDITS[name]
    edit(change)
    found, findings = check(store, key)
    assert not findings.valid
    assert code in codes(findings), findings.items
    assert set(ids) <= {*found.changed, *found.missing, *found.added, *found.reordered}


@pytest.mark.parametrize(
    ("change", "id", "fields"),
    [
        (set_row("tombstones", 4, 1), 4, ["deleted"]),
        (set_row("tombstones", 2, 0), 2, ["deleted"]),
        (set_row("activation_weights", 12, 2.0), 12, ["activation"]),
        (set_row("norms", 14, 7.0), 14, ["norm"]),
        (set_row("ids", 13, 99), 99, ["index"]),
        (set_row("ids", 13, 99), 13, ["index"]),
    ],
)
def test_names_the_field_where_one_value_explains_it(
    store: str, key: SecretKey, edit: Apply, change: Edit, id: int, fields: list[str]
) -> None:
    """A field is named when the signed hash comes out with another value in it."""
    edit(change)
    assert fields == check(store, key)[0].fields[id]


def test_only_the_changed_record_is_named(store: str, key: SecretKey, edit: Apply) -> None:
    """One text changed: one record, and no other finding."""
    edit(set_row("chunks", 7, b"memory number 70"))
    found, findings = check(store, key)
    assert ([7], [], [], []) == (found.changed, found.missing, found.added, found.reordered)
    assert ["record-changed"] == [item["code"] for item in findings.items]


def test_removed_and_moved_records_are_told_apart(store: str, key: SecretKey, edit: Apply) -> None:
    """Taking one out moves the others up without making them changed or reordered."""
    edit(rearrange([n for n in range(20) if n not in (6, 7)]))
    found, _ = check(store, key)
    assert ([], [6, 7], [], []) == (found.changed, found.missing, found.added, found.reordered)


def test_changed_setting_has_both_values(store: str, key: SecretKey, edit: Apply) -> None:
    """Name, signed value, found value."""

    def change(file: h5py.File) -> None:
        file["meta"].attrs["agent_id"] = "evil"
        file["meta"].attrs["decay_factor"] = float("nan")

    edit(change)
    expected: list[dict[str, Any]] = [
        {"name": "agent_id", "signed": "honest", "found": "evil"},
        {"name": "decay_factor", "signed": 0.98, "found": "nan"},
    ]
    assert expected == check(store, key)[0].changed_settings


def test_wider_text_columns_are_the_same_texts(store: str, key: SecretKey, edit: Apply) -> None:
    """Width, padding and variable length do not matter, the texts do."""

    def change(file: h5py.File) -> None:
        for name in ("chunks", "tags"):
            values = file["memory"][name][...]
            del file["memory"][name]
            kind = "S200" if name == "chunks" else h5py.string_dtype()
            file["memory"].create_dataset(name, data=values.astype("S200"), dtype=kind)

    edit(change)
    assert [] == check(store, key)[1].items


def test_another_key_is_refused(store: str) -> None:
    """A store signed by somebody else is not valid, however whole it is."""
    assert {"other-key", "signature-invalid"} == codes(check(store, secret_key(2))[1])


def test_resigned_by_another_key_is_refused(tmp_path: Path, key: SecretKey) -> None:
    """Swapping content and signature together does not help."""
    path = str(tmp_path / "m.h5")
    write_store(path, columns(), Signing(secret_key(2)))
    assert "other-key" in codes(check(path, key)[1])


def test_record_of_another_store_is_found(store: str, tmp_path: Path, key: SecretKey, edit: Apply) -> None:
    """A validly signed record of another store, with its leaf hash, is a changed record here."""
    other = str(tmp_path / "other.h5")
    content = columns()
    content.store_id = b"t" * 16
    content.timestamps = content.timestamps + 5
    write_store(other, content, Signing(key))

    def change(file: h5py.File) -> None:
        with h5py.File(other, locking=False) as source:
            for name in ("chunks", "timestamps", "norms"):
                set_row(name, 6, source["memory"][name][6])(file)
            set_row("leaves", 6, source["integrity"]["leaves"][6], "integrity")(file)

    edit(change)
    assert {"leaves-changed"} <= codes(check(store, key)[1])
    assert not check(store, key)[1].valid


def test_record_root_depends_on_the_records_alone(tmp_path: Path, key: SecretKey) -> None:
    """Order of sessions, entities and aliases, deleted records and compaction leave it as it is."""
    roots, digests = set(), set()
    for turn in range(3):
        content = columns()
        if turn == 1:
            content.session_rows.reverse()
            content.entity_rows.reverse()
            content.alias_rows.reverse()
        if turn == 2:  # without the deleted records
            live = [row for row in range(20) if row not in (2, 15)]
            for name in ("chunks", "source_channel", "session_ids", "tags", "keys", "source_ids"):
                column = getattr(content, name)
                column.base, column.kept = column.base[live], len(live)
            content.embeddings.base, content.embeddings.kept = content.embeddings.base[live], len(live)
            for name in ("ids", "timestamps", "tombstones", "norms", "activation"):
                setattr(content, name, getattr(content, name)[live])
        path = str(tmp_path / f"{turn}.h5")
        write_store(path, content, Signing(key))
        made = check(path, key)[0].manifest
        assert made is not None
        roots.add((made.record_root, made.records))
        if turn < 2:
            digests.add(str(made.tables))
    assert 1 == len(roots)
    assert 1 == len(digests)


def test_tables_differ_where_they_should(tmp_path: Path, key: SecretKey) -> None:
    """One more session, entity or alias, one other digest."""
    content = columns()
    path = str(tmp_path / "m.h5")
    write_store(path, content, Signing(key))
    before = check(path, key)[0].manifest
    content.session_rows.append(Session("s9", 0, 0, "", "", 0.0))
    content.entity_rows.append(Entity(9, "x", "y"))
    content.alias_rows.append(Alias("z", 9))
    write_store(path, content, Signing(key))
    after = check(path, key)[0].manifest
    assert before is not None and after is not None
    assert {"sessions", "entities", "aliases"} == {
        name for name in before.tables if before.tables[name] != after.tables[name]
    }


def test_size_of_the_seal(tmp_path: Path, key: SecretKey) -> None:
    """At most 40 bytes a record, even with ids full of gaps."""
    content = columns(4000)
    content.ids = np.cumsum(np.tile([1, 2], 2000)).astype(np.int64)
    content.events[0].record_id = int(content.ids[3])
    plain, sealed = str(tmp_path / "p.h5"), str(tmp_path / "s.h5")
    write_store(plain, content, None)
    write_store(sealed, content, Signing(key))
    assert [] == check(sealed, key)[1].items
    assert Path(sealed).stat().st_size - Path(plain).stat().st_size <= 40 * 4000 + 16_384
