"""`clawmem save --ndjson`: one record or event a line, one answer a line, committed in groups.

Invariants: a line is answered only after it is durable; a group is committed and answered when stdin has nothing to
read, or at 64 lines or 1 MiB; while stdin is idle the lock is free; a refused line changes nothing and never stops the
stream; memory does not grow with the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawmem_cli import output
from clawmem_cli.jsonin import LineParser
from clawmem_cli.lines import Idle, numbered_lines
from clawmem_cli.progress import tracked
from clawmem_cli.save import no_event, warn_unknown
from clawmem_cli.scopes import read_scope
from clawmem_cli.writing import signing_of, tell
from clawmem_core import door
from clawmem_core.contract.saving import save_event
from clawmem_core.errors import ClawmemError, HeldError, PartialError
from clawmem_core.writer import Writer

if TYPE_CHECKING:
    from clawmem_cli.parsing import Arguments
    from clawmem_core.model import Record

_GROUP_LINES = 64
_GROUP_BYTES = 1 << 20
#: exit codes of errors that are about one line; all others end the stream
OF_A_LINE = frozenset((2, 4, 14, 15, 16))


class _Stream:
    """One run: the writer while it is needed, the answers of the group, and the tally."""

    def __init__(self, args: Arguments) -> None:
        self.args = args
        self.parser = LineParser()
        self.signing = signing_of(args)
        self.writer: Writer | None = None
        self.answers: list[bytes | int] = []  # of the group, in order; the number of a line still to be staged
        self.records: list[Record] = []
        self.bytes = 0
        self.scope = None if args.scope is None else read_scope(args.scope)
        self.tally = {"saved": 0, "updated": 0, "exists": 0, "pending": 0, "refused": 0}
        self.unknown: dict[str, None] = {}

    def take(self, number: int, line: bytes) -> None:
        """Stage one line, or note why it is refused."""
        if self.writer is None:
            self.writer = Writer.open(self.args.path, self.args.lock_timeout, self.args.actor)
            output.reports(self.writer.reports)
        writer = self.writer
        try:
            fields = self.parser.parse(line, number)
            if "eventType" in fields:
                self._stage()
                saved = save_event(writer, fields, self.scope)
                self._answer(len(self.answers), number, saved.status, saved.index)
            elif self.scope is not None:
                raise no_event()
            else:
                self._warn(fields)
                self.records.append(door.object_record(fields, writer.header.dim, writer.float16))
                self.answers.append(number)
        except ClawmemError as problem:
            if problem.exit not in OF_A_LINE:
                raise
            self.refuse(number, problem)
        self.bytes += len(line)
        if len(self.answers) >= _GROUP_LINES or self.bytes >= _GROUP_BYTES:
            self.commit()

    def _stage(self) -> None:
        """Stage the records of the group as one frame and fill in their answers."""
        if not self.records or self.writer is None:
            return
        saved = iter(self.writer.save_together(self.records))
        for at, number in enumerate(self.answers):
            if isinstance(number, int):
                self._answer(at, number, *next(saved))
        self.records.clear()

    def _answer(self, at: int, number: int, status: str, index: int) -> None:
        """The answer of line `number`, at its place in the group."""
        self.tally[status] += 1
        self.answers[at : at + 1] = [b'{"line":%d,"status":"%s","index":%d}\n' % (number, status.encode(), index)]

    def _warn(self, fields: dict[str, Any]) -> None:
        """Tell each key that nothing reads once; --strict-keys raises UnknownKeyError."""
        for name in door.unknown_keys(fields, self.args.strict_keys):
            if name not in self.unknown and len(self.unknown) < 1000:
                self.unknown[name] = None
                warn_unknown([name])

    def refuse(self, number: int, problem: ClawmemError) -> None:
        """Answer a line with its error."""
        self.tally["refused"] += 1
        answer: dict[str, Any] = {"line": number, "status": "refused", "error": problem.document()}
        self.answers.append(output.json_bytes(answer) + b"\n")

    def commit(self, rests: bool = False) -> None:
        """Make the group durable, then answer it; `rests`: nothing more is there to be read."""
        if self.writer is not None:
            self._stage()
            self.writer.commit(sync=not self.args.no_sync)
        if self.answers:
            output.write(b"".join(answer for answer in self.answers if isinstance(answer, bytes)))
        if len(self.answers) >= _GROUP_LINES:
            import numpy  # noqa: F401 (a busy stream: the door rounds vectors three times as fast with it)
        self.answers.clear()
        self.bytes = 0
        if self.writer is not None and self.writer.stream_checkpoint_due(rests):
            tell("checkpoint", self.writer.automatic_checkpoint(self.signing)[1])

    def rest(self) -> None:
        """Nothing to read: finish the group and let the lock go."""
        self.commit(rests=True)
        self.close()

    def close(self) -> None:
        if self.writer is not None:
            writer, self.writer = self.writer, None
            writer.close()


def run_stream(args: Arguments) -> int:
    """Save every line of stdin; exit 3 when some were refused, else 16 when some are held for review."""
    stream = _Stream(args)
    try:
        for item in tracked(numbered_lines(), "saving"):
            if isinstance(item, Idle):
                stream.rest()
            elif isinstance(item.content, ClawmemError):
                stream.refuse(item.number, item.content)
            else:
                stream.take(item.number, item.content)
        stream.rest()
    finally:
        stream.close()
    refused, total = stream.tally["refused"], sum(stream.tally.values())
    output.summary({"lines": total, **stream.tally})
    if refused:
        raise PartialError(refused=refused, total=total, done="saved")
    if stream.tally["pending"]:
        raise HeldError(detail=f"{stream.tally['pending']} facts say what was rejected before; they wait for review")
    return 0
