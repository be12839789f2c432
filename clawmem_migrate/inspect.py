"""--inspect: what is in a database, and a mapping file for it to edit.

Invariant: what is printed is itself a valid mapping file (comments list all tables and columns), unless no table could
hold records; columns are matched by name only, nothing of the rows is read but their number.
"""

from __future__ import annotations

from clawmem_migrate.database import Database
from clawmem_migrate.mapping import TABLES

#: names under which a field is usually found, best first
_USUAL: dict[str, dict[str, tuple[str, ...]]] = {
    "records": {
        "id": ("id", "memory_id", "chunk_id", "uuid", "key", "rowid"),
        "chunk": ("chunk", "content", "text", "memory", "document", "body", "message", "value"),
        "embedding": ("embedding", "vector", "embeddings", "embedding_blob", "vec"),
        "source_channel": ("source_channel", "channel", "source", "role", "origin", "type"),
        "timestamp": ("timestamp", "created_at", "created", "time", "ts", "updated_at", "updated", "date"),
        "session_id": ("session_id", "session", "conversation_id", "thread_id", "conversation"),
        "tags": ("tags", "labels", "categories", "category"),
        "deleted": ("deleted", "is_deleted", "tombstone", "archived"),
    },
    "sessions": {
        "id": ("id", "session_id"), "start_idx": ("start_idx", "start_index", "start"),
        "end_idx": ("end_idx", "end_index", "end"), "channel": ("channel", "source_channel", "source"),
        "timestamp": ("timestamp", "created_at", "started_at", "time"), "summary": ("summary", "title", "description"),
    },
    "entities": {
        "id": ("id", "entity_id"), "name": ("name", "label"), "type": ("type", "kind", "entity_type"),
        "embedding_idx": ("embedding_idx", "embedding_index"),
    },
    "relations": {
        "src": ("src", "source", "source_id", "from_id", "subject"),
        "tgt": ("tgt", "target", "target_id", "to_id", "object"),
        "relation": ("relation", "type", "predicate", "kind"), "weight": ("weight", "strength"),
        "timestamp": ("timestamp", "created_at", "time"),
    },
}  # fmt: skip
_TABLE_NAMES = {
    "records": ("memory_chunks", "memories", "chunks", "embeddings", "documents", "messages"),
    "sessions": ("sessions",), "entities": ("entities",), "relations": ("relations",),
}  # fmt: skip
_NEEDED = {"records": ("id", "chunk"), "sessions": ("id",), "entities": ("id", "name"),
           "relations": ("src", "tgt", "relation")}  # fmt: skip


def describe(database: Database) -> str:
    """Tables, columns and counts as TOML comments, and a mapping below them."""
    columns = {table: database.columns(table) for table in database.tables()}
    lines = [f"# {_comment(database.path)}: {len(columns)} tables"]
    for table, found in columns.items():
        lines.append(f"# {_comment(table)}: {database.count(table)} rows")
        lines += [f"#     {_comment(name)} {_comment(kind)}".rstrip() for name, kind in found]
    names = {table: [name for name, _ in found] for table, found in columns.items()}
    for kind in TABLES:
        best = _best_table(kind, names)
        if best is None:
            lines += ["", f"# no table looks like {kind}"]
            continue
        lines += ["", f"[{kind}]", f"table = {_string(best)}"]
        lines += [_line(kind, field, names[best]) for field in TABLES[kind]]
    return "\n".join(lines) + "\n"


def _best_table(kind: str, columns: dict[str, list[str]]) -> str | None:
    """The table that has the needed columns and most of the others; a usual table name counts for two columns."""
    best, most = None, 0
    for table, names in columns.items():
        found = {field for field in TABLES[kind] if _match(kind, field, names)}
        if not set(_NEEDED[kind]) <= found:
            continue
        usual = table.casefold() in _TABLE_NAMES[kind]
        if kind != "records" and not usual:
            continue
        score = len(found) + 2 * usual
        if score > most:
            best, most = table, score
    return best


def _match(kind: str, field: str, names: list[str]) -> str | None:
    """The column a field is most likely in."""
    folded = {name.casefold(): name for name in names}
    return next((folded[usual] for usual in _USUAL[kind][field] if usual in folded), None)


def _line(kind: str, field: str, names: list[str]) -> str:
    """One field of a mapping; commented out where no column looks like it."""
    column = _match(kind, field, names)
    if column is None:
        return f'# {field} = ""'
    if field == "embedding":
        return f'{field} = {{ column = {_string(column)}, encoding = "f32", null = "refuse" }}'
    if field == "timestamp":
        return f'{field} = {{ column = {_string(column)}, unit = "auto" }}'
    return f"{field} = {_string(column)}"


def _string(text: str) -> str:
    """A TOML basic string."""
    escaped = "".join(f"\\u{ord(char):04x}" if char < " " or char in '"\\\x7f' else char for char in text)
    return f'"{escaped}"'


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
