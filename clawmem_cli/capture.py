"""`clawmem capture`: the turn that ends a transcript, cleaned, to an episode in the store or its outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawmem_cli import jsonin, output
from clawmem_cli.correction import scope_of
from clawmem_core.contract.capturing import capture
from clawmem_core.contract.redaction import Redactor, load_rules
from clawmem_core.errors import InvalidInputError, UsageError
from clawmem_core.storage import fs
from clawmem_core.strict_json import parse_json
from clawmem_core.times import format_rfc3339

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments

_MAX_RULES = 1 << 20
#: option → member of the episode
_MEMBERS = {
    "session": "externalSessionId", "source_event": "sourceEventId", "runtime": "runtime", "kind": "conversationKind",
    "channel_id_hash": "channelIdHash", "visibility": "visibility", "trust": "trustClass", "origin": "originClass",
    "provenance": "provenance",
}  # fmt: skip


def run(args: Arguments) -> int:
    """Capture; nothing to capture is {"status": "skipped"} and exit 0."""
    scope = scope_of(args)
    if args.session is None:
        raise UsageError(detail="no session given", hint="give --session ID")
    messages = _messages(parse_json(jsonin.read_all(), refuse_duplicates=True))
    output.document(
        capture(
            args.path, messages, scope=scope, metadata=_metadata(args), success=args.success, redactor=_redactor(args),
            actor=args.actor, lock_timeout=args.lock_timeout, queue=args.async_,
        )
    )  # fmt: skip
    return 0


def _messages(transcript: Any) -> list[Any]:
    """The messages of a transcript: an array, or an object with one under `messages`."""
    found = transcript.get("messages") if isinstance(transcript, dict) else transcript
    if not isinstance(found, list):
        raise InvalidInputError(field="transcript", detail='must be an array of messages, or {"messages": [...]}')
    return found


def _metadata(args: Arguments) -> dict[str, Any]:
    from clawmem_cli.search import time_of
    from clawmem_core import clock

    given = {member: getattr(args, name) for name, member in _MEMBERS.items() if getattr(args, name) is not None}
    observed = time_of("--observed-at", args.observed_at)
    time = format_rfc3339(clock.now() if observed is None else observed)
    return {"provenance": f"{args.runtime}:capture", "observedAt": time, **given}


def _redactor(args: Arguments) -> Redactor | None:
    """The built-in patterns, and those of --redaction-rules."""
    if args.redaction_rules is None:
        return None
    data = fs.read_all(args.redaction_rules, _MAX_RULES + 1)
    if data is None or len(data) > _MAX_RULES:
        raise InvalidInputError(field="--redaction-rules", detail="is missing or too long")
    try:
        return load_rules(data.decode())
    except UnicodeDecodeError:
        raise InvalidInputError(field="--redaction-rules", detail="is not valid UTF-8") from None
