"""`clawmem save --ndjson`: one record or event a line, one answer a line, committed in groups.

Invariants: a line is answered only after it is durable; a group is committed and answered when stdin has nothing to
read, or at 256 lines or 1 MiB; where that lasts a moment the lock is let go; a refused line changes nothing and never
stops the stream; memory does not grow with the stream.
"""

from __future__ import annotations

from clawmem_cli import output
from clawmem_cli.jsonin import LineParser
from clawmem_cli.lines import blocks_of_lines
from clawmem_cli.progress import tracked
from clawmem_cli.save import no_event, warn_unknown
from clawmem_cli.writing import signing_of, tell
from clawmem_core import door
from clawmem_core.errors import ClawmemError, HeldError, PartialError
from clawmem_core.plain import PlainRows
from clawmem_core.writer import STREAM_UNSYNCED, Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawmem_cli.lines import Line
    from clawmem_cli.parsing import Arguments
    from clawmem_core.model import Record

_GROUP_LINES = 256
_GROUP_BYTES = 1 << 20
_BUSY_LINES = 64  # so many at once show that more are coming
#: glibc keeps twice the largest block ever freed at hand. With less than the few copies of a group that come and go, it
#: gives them back to the kernel, which clears them anew, for each group: a sixth of the time of a stream
_SPARE_BYTES = 4 << 20
#: exit codes of errors that are about one line; all others end the stream
OF_A_LINE = frozenset((2, 4, 14, 15, 16))


class _Stream:
    """One run: the group that is being read, the writer while it is needed, and the tally."""

    def __init__(self, args: Arguments) -> None:
        self.args = args
        self.parser = LineParser()
        self.signing = signing_of(args)
        self.writer: Writer | None = None
        self.plain: PlainRows | None = None
        self.group: list[Line] = []
        self.bytes = 0
        self.answers: list[bytes] = []  # of the group, in order; b"" until the line is staged
        self.waiting: list[int] = []  # places in the group of what is in `plain`, or else in `records`, to be staged
        self.records: list[Record] = []
        self.scope: dict[str, Any] | None = None
        if args.scope is not None:
            from clawmem_cli.scopes import read_scope

            self.scope = read_scope(args.scope)
        self.tally = {"saved": 0, "updated": 0, "exists": 0, "pending": 0, "refused": 0}
        self.unknown: dict[str, None] = {}

    def take(self, block: list[Line]) -> None:
        """Pass lines through the door, or note why one is refused; each time the group is full it is committed."""
        while block:
            writer, plain = self._open()
            room = _GROUP_LINES - len(self.group)
            part, block = block[:room], block[room:]
            self._take_part(writer, plain, part)
            full = len(self.group) >= _GROUP_LINES or self.bytes >= _GROUP_BYTES
            if plain.numbers_came and (full or len(self.group) >= _BUSY_LINES):
                plain.use_numpy()
            if full:
                self.commit()

    def _take_part(self, writer: Writer, plain: PlainRows, part: list[Line]) -> None:
        """Take lines into the group: plain ones together, if all are plain, and everything else one by one."""
        first = len(self.group)
        self.group += part
        self.answers += [b""] * len(part)
        self.bytes += sum([len(line) for _, line in part if isinstance(line, bytes)])
        found = self.parser.flats([line for _, line in part]) if self.scope is None else [None] * len(part)
        flat = [fields for fields in found if fields is not None]
        if len(flat) == len(part) and plain.add(flat):
            self._stage_records(writer)
            self.waiting += range(first, len(self.group))
            return
        for at, ((number, line), fields) in enumerate(zip(part, found, strict=True), first):
            try:
                if not isinstance(line, bytes):
                    raise line
                if fields is not None and plain.add([fields]):
                    self._stage_records(writer)
                    self.waiting.append(at)
                else:
                    self._stage_plain(writer, plain)
                    self._take_apart(writer, at, number, line)
            except ClawmemError as problem:
                if problem.exit not in OF_A_LINE:
                    raise
                self._refuse(at, problem)

    def _open(self) -> tuple[Writer, PlainRows]:
        if self.writer is None:
            self.writer = Writer.open(self.args.path, self.args.lock_timeout, self.args.actor)
            output.reports(self.writer.reports)
        header = self.writer.header
        if self.plain is None or (self.plain.dim, self.plain.float16) != (header.dim, self.writer.float16):
            self.plain = PlainRows(header.dim, self.writer.float16)
        return self.writer, self.plain

    def _take_apart(self, writer: Writer, at: int, number: int, line: bytes) -> None:
        """Pass one line through the door by itself."""
        fields = self.parser.parse(line, number)
        if "eventType" in fields:
            from clawmem_core.contract.saving import save_event

            self._stage_records(writer)
            saved = save_event(writer, fields, self.scope)
            self._answer(at, saved.status, saved.index)
        elif self.scope is not None:
            raise no_event()
        else:
            self._warn(fields)
            self.records.append(door.object_record(fields, writer.header.dim, writer.float16))
            self.waiting.append(at)

    def _stage_records(self, writer: Writer) -> None:
        """Stage the records that wait as one frame and fill in their answers."""
        if self.records:
            for at, answer in zip(self.waiting, writer.save_together(self.records), strict=True):
                self._answer(at, *answer)
            self.records.clear()
            self.waiting.clear()

    def _stage_plain(self, writer: Writer, plain: PlainRows) -> None:
        """Stage the plain rows that wait as one frame and fill in their answers."""
        for row in reversed(plain.finish()):
            at = self.waiting[row]
            number, line = self.group[at]
            assert isinstance(line, bytes)
            try:
                vector = door.object_vector(self.parser.parse(line, number), plain.dim, plain.float16)
                plain.vectors[row] = vector or b""
            except ClawmemError as problem:
                self._refuse(at, problem)
                plain.drop(row)
                del self.waiting[row]
        if len(plain):
            self.tally["saved"] += len(plain)
            group, answers = self.group, self.answers
            for index, at in enumerate(self.waiting, writer.save_plain(plain)):
                answers[at] = b'{"line":%d,"status":"saved","index":%d}\n' % (group[at][0], index)
            plain.clear()
            self.waiting.clear()

    def _answer(self, at: int, status: str, index: int) -> None:
        """The answer of the line at this place in the group."""
        self.tally[status] += 1
        self.answers[at] = b'{"line":%d,"status":"%s","index":%d}\n' % (self.group[at][0], status.encode(), index)

    def _warn(self, fields: dict[str, Any]) -> None:
        """Tell each key that nothing reads once; --strict-keys raises UnknownKeyError."""
        for name in door.unknown_keys(fields, self.args.strict_keys):
            if name not in self.unknown and len(self.unknown) < 1000:
                self.unknown[name] = None
                warn_unknown([name])

    def _refuse(self, at: int, problem: ClawmemError) -> None:
        """Answer a line with its error."""
        self.tally["refused"] += 1
        answer: dict[str, Any] = {"line": self.group[at][0], "status": "refused", "error": problem.document()}
        self.answers[at] = output.json_bytes(answer) + b"\n"

    def commit(self, rests: bool = False) -> None:
        """Make the group durable, then answer it; `rests`: nothing more is there to be read."""
        if self.writer is not None and self.plain is not None:
            self._stage_plain(self.writer, self.plain)
            self._stage_records(self.writer)
            self.writer.commit(not self.args.no_sync, STREAM_UNSYNCED)
        if self.group:
            output.write(b"".join(self.answers))
            self.group.clear()
            self.answers.clear()
            self.bytes = 0
        if self.writer is not None and self.writer.stream_checkpoint_due(rests):
            tell("checkpoint", self.writer.automatic_checkpoint(self.signing)[1])

    def rest(self) -> None:
        """Nothing to read for a while: finish the group and let the lock go."""
        self.commit(rests=True)
        if self.writer is not None:
            self.writer.log.settle()
        self.close()

    def close(self) -> None:
        if self.writer is not None:
            writer, self.writer = self.writer, None
            writer.close()


def run_stream(args: Arguments) -> int:
    """Save every line of stdin; exit 3 when some were refused, else 16 when some are held for review."""
    bytes(_SPARE_BYTES)
    stream = _Stream(args)
    try:
        for block in tracked(blocks_of_lines(), "saving"):
            if block:
                stream.take(block)
            elif stream.group:
                stream.commit()
            else:
                stream.rest()
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
