"""`clawmem save`: one record, durable before it is acknowledged. HOT (streams are save_stream.py)."""

from __future__ import annotations

from clawmem_cli import jsonin, output
from clawmem_core import door
from clawmem_core.errors import InvalidInputError, KeyFileError, UsageError
from clawmem_core.storage import fs
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
    fields = jsonin.read_object(args.json)
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
        output.reports(writer.reports)
        if writer.pending > writer.threshold() or writer.checkpoint_each_time:
            from clawmem_cli.writing import checkpoint_if_due

            checkpoint_if_due(args, writer, before)
    return 0


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
