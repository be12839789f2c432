"""`clawmem save`: one record, durable before it is acknowledged. HOT (streams are save_stream.py)."""

from __future__ import annotations

from clawmem_cli import jsonin, output
from clawmem_core import door
from clawmem_core.errors import HeldError, InvalidInputError, InvalidJsonError, KeyFileError, UsageError
from clawmem_core.storage import fs
from clawmem_core.strict_json import FOLLOWED
from clawmem_core.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawmem_cli.parsing import Arguments


def run(args: Arguments) -> int:
    """Save what was given and print {"status", "index", "count"}."""
    if args.ndjson:
        if args.json is not None or args.key is not None:
            raise UsageError(detail="--ndjson reads lines from stdin; it takes neither --json nor --key")
        from clawmem_cli.save_stream import run_stream

        return run_stream(args)
    require_key_file(args)
    fields = _read_one(args.json)
    if "eventType" in fields:
        return _save_event(args, fields)
    if args.scope is not None:
        raise no_event()
    if args.key is not None:
        _put_key(fields, args.key)
    unknown = door.unknown_keys(fields, args.strict_keys)
    with Writer.open(args.path, args.lock_timeout, args.actor) as writer:
        before = writer.pending
        record = door.object_record(fields, writer.header.dim, writer.float16)
        status, index = writer.save(record)
        writer.commit(sync=not args.no_sync)
        output.document({"status": status, "index": index, "count": writer.state.rows})
        warn_unknown(unknown)
        _finish(args, writer, before)
    return 0


def _read_one(text: str | None) -> dict[str, Any]:
    """The object to save; whoever pipes several in is told how. Raises as `jsonin.read_object`."""
    try:
        return jsonin.read_object(text)
    except InvalidJsonError as problem:
        if text in (None, "-") and problem.fields["detail"] == FOLLOWED:
            raise InvalidJsonError(**problem.fields, hint="for several objects, one a line, give --ndjson") from None
        raise


def _save_event(args: Arguments, fields: dict[str, Any]) -> int:
    """Save an event and print {"status", "index", "count", "id"}. Raises HeldError after it was stored for review."""
    from clawmem_cli.scopes import read_scope
    from clawmem_core.contract.saving import save_event

    if args.key is not None:
        raise UsageError(detail="an event has an id of its own; it takes no --key")
    scope = None if args.scope is None else read_scope(args.scope)
    with Writer.open(args.path, args.lock_timeout, args.actor) as writer:
        before = writer.pending
        saved = save_event(writer, fields, scope)
        writer.commit(sync=not args.no_sync)
        output.document({"status": saved.status, "index": saved.index, "count": writer.state.rows, "id": saved.id})
        _finish(args, writer, before)
    if saved.status == "pending":
        raise held(saved.id)
    return 0


def held(id: str) -> HeldError:
    """What a save of a rejected value ends with."""
    return HeldError(detail=f"fact {id} says what was rejected before; it is stored and waits for review")


def no_event() -> InvalidInputError:
    """What --scope says to a plain record."""
    return InvalidInputError(field="--scope", detail="takes events; a record without eventType has no scope")


def _finish(args: Arguments, writer: Writer, before: int) -> None:
    """What follows an acknowledged save. `before`: entries pending before it."""
    output.reports(writer.reports)
    if writer.pending > writer.threshold() or writer.checkpoint_each_time:
        from clawmem_cli.writing import checkpoint_if_due

        checkpoint_if_due(args, writer, before)


def require_key_file(args: Arguments) -> None:
    """A key file that is not there is told at once; it is read only when a checkpoint is due. Raises KeyFileError."""
    if args.signing_key is not None and not fs.exists(args.signing_key):
        raise KeyFileError(path=args.signing_key, detail="no such file")


def _put_key(fields: dict[str, Any], key: str) -> None:
    """--key as the object's key; both may be given if they agree."""
    if not key:
        raise InvalidInputError(field="--key", detail="is empty")
    if fields.get("key", key) != key:
        raise InvalidInputError(field="--key", detail=f"is {key!r}, the object says {fields['key']!r}")
    fields["key"] = key


def warn_unknown(names: list[str]) -> None:
    """One warning for each key of the input that nothing reads."""
    for name in names:
        output.warning("unknown-key", f"unknown key {name!r} was not stored")
