"""From a transcript to an episode: the latest completed pair, cleaned, or the reason why there is none.

Invariants: only text parts of user and assistant messages are read; our own recalled blocks are cut out, so memory
never feeds itself; redaction comes before bounding, bounding before the id. An episode that leaves here is valid and
carries its own id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from clawmem_core.contract.identities import create_episode_event
from clawmem_core.contract.redaction import Redactor
from clawmem_core.contract.render import DEFAULT_HEADING, FENCE_CLOSE, FENCE_OPEN, bounded_text
from clawmem_core.contract.scope import scope_of
from clawmem_core.contract.validate import SECRET_MEMBERS, check_event, refuse_secrets
from clawmem_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SKIP_REASONS: Final = {
    "failed-turn": "the host says the turn did not succeed",
    "no-user-message": "there is no user message",
    "unanswered": "the last user message has no answer yet",
    "incomplete-turn": "the turn ends with a tool, not with an answer",
    "no-text": "one side of the pair has no text",
    "nothing-left": "nothing is left of one side once recalled memories are cut out",
}
METADATA: Final = frozenset((
    "runtime", "externalSessionId", "sourceEventId", "turnIndex", "conversationKind", "channelIdHash", "visibility",
    "trustClass", "originClass", "observedAt", "provenance",
))  # fmt: skip
_DEFAULTS: Final = {"visibility": "participant", "trustClass": "mixed", "originClass": "conversation"}
_TOOL_ROLES: Final = ("tool", "function", "toolResult", "tool_result")
_TEXT_PARTS: Final = ("text", "input_text", "output_text")


class Capture(NamedTuple):
    """`event`: the episode, or None and the `skipped` reason (a key of SKIP_REASONS). `redacted`: counts by class."""

    event: dict[str, Any] | None
    skipped: str
    redacted: dict[str, int]


class Pair(NamedTuple):
    """The texts of a completed turn, as they stand in the transcript, trimmed."""

    user_text: str
    assistant_text: str


def capture_episode(
    messages: Sequence[Any],
    *,
    scope: Mapping[str, Any],
    metadata: Mapping[str, Any],
    success: bool = True,
    redactor: Redactor | None = None,
) -> Capture:
    """The episode of the turn that ends a transcript.

    `messages`: objects with `role` and `content` (text, or a list of typed parts). `scope`: the five fields.
    `metadata`: the other members of an episode; visibility, trustClass and originClass have defaults. Raises
    InvalidInputError for other metadata or a secret in a member that names things; InvalidEventError or ScopeError for
    values that make no valid episode.
    """
    unknown = metadata.keys() - METADATA
    if unknown:
        raise InvalidInputError(field=min(unknown), detail="is no metadata of an episode")
    if not success:
        return Capture(None, "failed-turn", {})
    pair = latest_pair(messages)
    if isinstance(pair, str):
        return Capture(None, pair, {})
    rules = redactor or Redactor()
    refuse_secrets(metadata, SECRET_MEMBERS["episode"], rules)
    counts: dict[str, int] = {}
    user_text, assistant_text = (_clean(text, rules, counts) for text in pair)
    if not user_text or not assistant_text:
        return Capture(None, "nothing-left", counts)
    members = {
        **_DEFAULTS,
        **metadata,
        **scope_of(scope),
        "userText": user_text,
        "assistantText": assistant_text,
        "summary": bounded_text(f"User: {user_text}\nAssistant: {assistant_text}"),
    }
    event = create_episode_event(members)
    check_event(event)
    return Capture(event, "", counts)


# ---------------------------------------------------------------- pair


def latest_pair(messages: Sequence[Any]) -> Pair | str:
    """The pair that ends a transcript, or a key of SKIP_REASONS.

    A turn is the last user message and all assistant text after it, in order. It is complete when its last message,
    tools counted, is an assistant message with text. Entries that are no messages and other roles are passed over.
    """
    turn: list[Mapping[str, Any]] = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role == "user":
            turn = [message]
        elif turn and (role == "assistant" or role in _TOOL_ROLES):
            turn.append(message)
    if not turn:
        return "no-user-message"
    if len(turn) == 1:
        return "unanswered"
    if turn[-1]["role"] != "assistant":
        return "incomplete-turn"
    user_text = _text_of(turn[0])
    answers = [_text_of(message) for message in turn[1:] if message["role"] == "assistant"]
    if not answers[-1]:
        return "no-text" if len(turn) == 2 else "incomplete-turn"
    if not user_text:
        return "no-text"
    return Pair(user_text, "\n".join(filter(None, answers)))


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part["text"] for part in content if _is_text_part(part)]
        content = "\n".join(parts)
    # NUL goes here: dropped only after redaction, it would join the halves of a secret that it kept apart.
    return bounded_text(content, float("inf")) if isinstance(content, str) else ""


def _is_text_part(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str)


# ---------------------------------------------------------------- cleaning


def cut_echo(text: str) -> str:
    """The text without blocks that `format_recalled_memories` or `format_fenced_memories` made, quoted or not.

    Cut are the default heading, fence lines, and header lines with the quoted line that follows, wherever they stand,
    so a block that was shortened, indented or torn apart goes too.
    """
    kept: list[str] = []
    after_header = False
    for line in text.split("\n"):
        bare = _bare(line)
        is_header = bare.startswith("[Memory ") and bare.endswith("]") and "; source=" in bare
        is_body = after_header and bare.startswith('"')
        is_frame = bare == DEFAULT_HEADING or bare.startswith(FENCE_OPEN) or bare.endswith(FENCE_CLOSE)
        if is_header or is_frame:
            while kept and not _bare(kept[-1]):
                kept.pop()
        elif not is_body:
            kept.append(line)
        after_header = is_header
    return "\n".join(kept)


def _bare(line: str) -> str:
    """A line without indentation and quote marks."""
    return line.rstrip(" \t\r").lstrip("> \t")


def _clean(text: str, redactor: Redactor, counts: dict[str, int]) -> str:
    redacted, found = redactor.redact(cut_echo(text))
    for name, count in found.items():
        counts[name] = counts.get(name, 0) + count
    return bounded_text(redacted)
