"""The overlay: what each operation means, against a plain dict."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from clawmem_core.model import Record
from clawmem_core.overlay import Overlay
from clawmem_core.storage import ops, row_ops


class Base:
    """Four rows below the overlay: ids 0 to 3, the last one deleted."""

    def row_of(self, id: int) -> int:
        return id if 0 <= id < 4 else -1

    def record(self, row: int) -> Record:
        record = Record(row, f"base {row}", float(row))
        record.deleted = row == 3
        return record

    def deleted_ids(self) -> list[int]:
        return [3]

    def sessions(self) -> Iterable[row_ops.Session]:
        return [row_ops.Session("old", 0, 1, "", "", 0.0)]

    def entities(self) -> Iterable[row_ops.Entity]:
        return [row_ops.Entity(0, "Alice", "person")]

    def relations(self) -> Iterable[row_ops.Relation]:
        return [row_ops.Relation(0, 0, "self", 1.0, 0.0)]

    def aliases(self) -> Iterable[row_ops.Alias]:
        return [row_ops.Alias("al", 0)]


def seen(overlay: Overlay) -> dict[int, tuple[str, bool, float]]:
    """Text, deleted flag and activation of every row, base and overlay together."""
    rows = {}
    for row in range(4):
        if row in overlay.dropped or row in overlay.records:
            continue
        record = overlay.base.record(row)
        deleted = (record.deleted or row in overlay.deleted) and row not in overlay.undeleted
        rows[row] = (record.chunk, deleted, overlay.activation.get(row, record.activation))
    rows.update({id: (r.chunk, r.deleted, r.activation) for id, r in overlay.records.items()})
    return rows


actions = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "undelete", "compact", "purge", "boost"]), st.integers(0, 6))
)


@given(actions)
def test_operations_against_a_dict(steps: list[tuple[str, int]]) -> None:
    """Random operations on rows that can take them; both sides see the same rows, and the sets stay disjoint."""
    overlay, model, next_id = Overlay(Base()), seen(Overlay(Base())), 4
    for step, (action, id) in enumerate(steps):
        if action == "put":
            id = id if id in model and not model[id][1] else next_id
            next_id = max(next_id, id + 1)
            model[id] = (f"put {step}", False, 1.0)
            overlay.apply(ops.decode(ops.record(Record(id, f"put {step}", 0.0))))
        elif action == "compact":
            model = {id: row for id, row in model.items() if not row[1]}
            overlay.apply(ops.decode(ops.compact()))
        elif id in model:
            text, deleted, weight = model[id]
            if action == "delete" and not deleted:
                model[id] = (text, True, weight)
                overlay.apply(ops.decode(ops.ids(ops.DELETE, [id])))
            elif action == "undelete" and deleted:
                model[id] = (text, False, weight)
                overlay.apply(ops.decode(ops.ids(ops.UNDELETE, [id])))
            elif action == "purge":
                del model[id]
                overlay.apply(ops.decode(ops.purge([id])))
            elif action == "boost" and not deleted:
                model[id] = (text, deleted, 2.0)
                overlay.apply(ops.decode(ops.activation([(id, 2.0)])))
        assert model == seen(overlay)
        sets = [set(overlay.records), overlay.deleted, overlay.undeleted, overlay.dropped]
        assert sum(map(len, sets)) == len(set().union(*sets))
    live = {id for id, row in model.items() if not row[1]}
    assert {id for id in live if id in overlay.records or id == 3} == {r.id for r in overlay.live_records()}


def test_tables_are_copied_when_first_changed() -> None:
    """Sessions and graph: untouched tables are the base's, changed ones complete."""
    overlay = Overlay(Base())
    assert overlay.sessions is None
    overlay.apply(ops.decode(row_ops.session(row_ops.Session("new", 1, 2, "c", "s", 5.0))))
    overlay.apply(ops.decode(row_ops.entity(row_ops.Entity(1, "Bob", "person"))))
    overlay.apply(ops.decode(row_ops.relation(row_ops.Relation(0, 1, "knows", 0.5, 0.0))))
    overlay.apply(ops.decode(row_ops.alias(row_ops.Alias("bobby", 1))))
    assert ["old", "new"] == [row.id for row in overlay.all_sessions()]
    assert ["Alice", "Bob"] == [row.name for row in overlay.all_entities()]
    assert ["self", "knows"] == [row.type for row in overlay.all_relations()]
    assert ["al", "bobby"] == [row.name for row in overlay.all_aliases()]
    for removed in (
        row_ops.remove(row_ops.SESSION_KIND, name="old"), row_ops.remove(row_ops.ENTITY_KIND, 0),
        row_ops.remove(row_ops.RELATION_KIND, 0, 0, "self"), row_ops.remove(row_ops.ALIAS_KIND, name="al"),
    ):  # fmt: skip
        overlay.apply(ops.decode(removed))
    assert ["new"] == [row.id for row in overlay.all_sessions()]
    assert [1] == [row.id for row in overlay.all_entities()]
    assert ["knows"] == [row.type for row in overlay.all_relations()]
    assert ["bobby"] == [row.name for row in overlay.all_aliases()]


def test_a_new_version_closes_the_one_before() -> None:
    """In the overlay directly, in the base by `closed`."""
    first = row_ops.EventRow(
        label=2, status=2, trust=1, record_id=9, valid_from=0.0, recorded_from=10, event_id=b"e" * 32,
        scope_key=b"s" * 32, payload=b"{}",
    )  # fmt: skip
    overlay = Overlay(Base())
    overlay.apply(ops.decode(row_ops.event(first.changed(version=2, recorded_from=20))))
    overlay.apply(ops.decode(row_ops.event(first.changed(version=3, recorded_from=30))))
    assert {(2, b"e" * 32, b"s" * 32): 20} == overlay.closed
    assert [(2, 30), (3, 0)] == [(row.version, row.recorded_to) for row in overlay.events]
    overlay.apply(ops.decode(ops.purge([9])))
    assert [] == overlay.events
