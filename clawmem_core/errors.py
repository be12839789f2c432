"""Every error of the toolchain: code word, exit code, message template and hint, in one table.

Invariants: a class *is* its code word, exit code and message; code words are unique and never renamed; a message says
what happened, to which file or record, and what was kept; the hint says what to do. `docs/errors.md` is generated from
this module and a test fails on drift. Nothing here imports anything, so the one-shot `save` can load it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar


class ClawmemError(Exception):
    """Base of all errors a user can meet. Keyword arguments fill the template; `hint` overrides the class's hint.

    Attributes: `code` (stable word), `exit` (process exit code), `message` (one line), `hint` (one line or ""),
    `fields` (the keyword arguments, for programs).
    """

    code: ClassVar[str] = "internal"
    exit: ClassVar[int] = 1
    template: ClassVar[str] = "internal error: {detail}"
    default_hint: ClassVar[str] = ""

    def __init__(self, *, hint: str | None = None, **fields: Any) -> None:
        self.fields = fields
        self.message = one_line(self.template.format(**fields))
        self.hint = self.default_hint if hint is None else hint
        super().__init__(self.message)

    def document(self) -> dict[str, Any]:
        """The error as the JSON object printed on stderr: code, exit, message, hint."""
        return {"code": self.code, "exit": self.exit, "message": self.message, "hint": self.hint}


def one_line(text: str) -> str:
    """Text with line breaks and control characters made visible, so that one error stays one line.

    Bytes of a path that the locale could not decode are read as UTF-8.
    """
    try:
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # surrogates that stand for no byte
        text = text.encode("utf-8", "backslashreplace").decode()
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


class InternalError(ClawmemError):
    """A fault of the program itself. Nothing of the store was changed after it."""

    code = "internal"
    exit = 1
    template = "internal error: {detail}"
    default_hint = "this is a fault of clawmem; please report it with the command line"


# ---------------------------------------------------------------- 2: usage, invalid input


class UsageError(ClawmemError):
    """The command line or the arguments of a call make no sense."""

    code = "usage"
    exit = 2
    template = "{detail}"
    default_hint = "see --help"


class InvalidInputError(ClawmemError):
    """A value was refused at the door; nothing was stored."""

    code = "invalid-input"
    exit = 2
    template = "{field}: {detail}"


class InvalidJsonError(ClawmemError):
    """Text that is not one JSON document of the expected kind."""

    code = "invalid-json"
    exit = 2
    template = "not valid JSON at line {line}: {detail}"


class DuplicateKeyError(ClawmemError):
    """A JSON object names a key twice, so what it means is open."""

    code = "duplicate-key"
    exit = 2
    template = "key {key!r} stands twice in one JSON object"


class UnknownKeyError(ClawmemError):
    """--strict-keys: a JSON object has a key that nothing reads."""

    code = "unknown-key"
    exit = 2
    template = "unknown key {key!r}"
    default_hint = "leave --strict-keys out to save the rest with a warning"


class InvalidVectorError(ClawmemError):
    """A vector with a value that cannot be stored, or none that can be."""

    code = "invalid-vector"
    exit = 2
    template = "embedding: {detail}"


class InvalidTimeError(ClawmemError):
    """A time that is no finite number of seconds and no RFC 3339 text with a zone."""

    code = "invalid-time"
    exit = 2
    template = "{field}: {detail}"


class InvalidEventError(ClawmemError):
    """An event that does not match AgentMemoryEvent v1."""

    code = "invalid-event"
    exit = 2
    template = "event refused: {detail}"


class MappingError(ClawmemError):
    """A mapping file of clawmem-migrate that cannot be read or makes no sense."""

    code = "mapping"
    exit = 2
    template = "mapping {name}: {detail}"
    default_hint = "clawmem-migrate --inspect prints one to start from"


class SourceRowsError(ClawmemError):
    """Rows of a migration's source cannot be stored as they are; no output was made."""

    code = "source-rows"
    exit = 2
    template = "{refused} rows of {path} cannot be migrated; nothing was written"
    default_hint = "the report on stdout lists every problem; --skip-invalid migrates the rest"


class ForgedIdError(ClawmemError):
    """An event whose id is not the one its content gives."""

    code = "forged-id"
    exit = 2
    template = "event refused: {member} is {given}, its content gives {computed}"
    default_hint = "leave the id to `clawmem hash`, or restore the original content"


class ScopeError(ClawmemError):
    """A scope that lacks one of its five fields, or has one that is blank or of another type."""

    code = "scope"
    exit = 2
    template = "{detail}"


class ScopeMismatchError(ClawmemError):
    """An event that claims another scope than the scope file."""

    code = "scope-mismatch"
    exit = 2
    template = "event refused: its {member} is not that of the scope in force"
    default_hint = "the scope file is the only authority on scope"


# ---------------------------------------------------------------- 3: partial


class PartialError(ClawmemError):
    """Some lines of the input were refused; the rest is stored, or answered."""

    code = "partial"
    exit = 3
    template = "{refused} of {total} lines refused; the others are {done}"
    default_hint = "each refused line has its reason on stdout"


class PartialMigrationError(ClawmemError):
    """--skip-invalid: some rows of the source were refused; the rest is migrated and checked."""

    code = "partial-migration"
    exit = 3
    template = "{refused} rows of {path} were refused; the others are migrated"
    default_hint = "the report on stdout lists every problem; --rejects FILE keeps the rows"


# ---------------------------------------------------------------- 4: not found


class NotFoundError(ClawmemError):
    """There is no such record, fact, session or review item (here, or in this scope)."""

    code = "not-found"
    exit = 4
    template = "no {kind} {id}"


class DeletedError(ClawmemError):
    """The record existed and was deleted."""

    code = "deleted"
    exit = 4
    template = "record {id} is deleted"
    default_hint = "export --include-deleted shows it until compact"


# ---------------------------------------------------------------- 10: no store


class NoStoreError(ClawmemError):
    """There is no store at this path."""

    code = "no-store"
    exit = 10
    template = "no store at {path}"
    default_hint = "make one with `clawmem --path FILE create`"


# ---------------------------------------------------------------- 11: locked


class LockedError(ClawmemError):
    """Another process writes to the store."""

    code = "locked"
    exit = 11
    template = "{path} is locked by {owner}; waited {seconds:g} s, nothing was changed"
    default_hint = "wait for it, or raise --lock-timeout"


class DeadlineError(ClawmemError):
    """An answer was not ready at its deadline."""

    code = "deadline"
    exit = 11
    template = "no answer within {milliseconds} ms"


class SourceChangedError(ClawmemError):
    """Another program wrote to a migration's source while it was read, so what was read is no single state of it."""

    code = "source-changed"
    exit = 11
    template = "{path} was written to while it was read; no output was made"
    default_hint = "run again when the other program is done"


# ---------------------------------------------------------------- 12: key and signature input


class KeyFileError(ClawmemError):
    """A key file that is missing, unreadable, no Ed25519 key, or open to others."""

    code = "key-file"
    exit = 12
    template = "key file {path}: {detail}"


class SigningKeyRequiredError(ClawmemError):
    """The store is signed and this checkpoint was not given the key."""

    code = "signing-key-required"
    exit = 12
    template = "{path} is signed; a checkpoint needs its key. Saves stay durable in the log ({pending} entries)"
    default_hint = "give --signing-key FILE or set CLAWMEM_SIGNING_KEY_FILE"


class WrongKeyError(ClawmemError):
    """The store is signed with another key."""

    code = "wrong-key"
    exit = 12
    template = "{path} is signed with key {expected}, not {given}; nothing was signed"
    default_hint = "use that key, or change keys on purpose with --rotate-key"


class PublicKeyError(ClawmemError):
    """verify was given no public key, or something that is none."""

    code = "public-key"
    exit = 12
    template = "public key: {detail}"
    default_hint = "give --public-key HEX or a file that holds it"


class NoteError(ClawmemError):
    """A checkpoint note that is unreadable, badly signed or of another form."""

    code = "note"
    exit = 12
    template = "checkpoint note {path}: {detail}"


# ---------------------------------------------------------------- 13: integrity, damage


class DamagedError(ClawmemError):
    """A file of the store is damaged; it was left as it is."""

    code = "damaged"
    exit = 13
    template = "{path} is damaged: {detail}"
    default_hint = "run `clawmem doctor`"


class IntegrityError(ClawmemError):
    """What is stored does not match what was signed or recorded; nothing was signed or changed."""

    code = "integrity"
    exit = 13
    template = "{path}: {detail}"
    default_hint = "run `clawmem verify` with the public key"


class MigrationMismatchError(ClawmemError):
    """What a migrated store gives back is not what its source holds."""

    code = "migration-mismatch"
    exit = 13
    template = "{path} differs from {source}: {differences} differences; {outcome}"
    default_hint = "the report on stdout lists them"


# ---------------------------------------------------------------- 14: schema, version, dimension


class DimensionError(ClawmemError):
    """A vector of another length than the store's."""

    code = "dimension"
    exit = 14
    template = "the store holds vectors of {expected} values, this one has {given}"


class NotAStoreError(ClawmemError):
    """The file is there and is no store of this toolchain."""

    code = "not-a-store"
    exit = 14
    template = "{path} is no clawmem store: {detail}"


class NotASourceError(ClawmemError):
    """A migration's source is there and cannot be read as a SQLite database."""

    code = "not-a-source"
    exit = 14
    template = "{path} is no SQLite database: {detail}"


class SourceLayoutError(ClawmemError):
    """A migration's source lacks a table or column that the mapping names."""

    code = "source-layout"
    exit = 14
    template = "{path}: {detail}"
    default_hint = "give --mapping, --map FILE or a --*-table option; --inspect shows what is there"


class NewerFormatError(ClawmemError):
    """The file was written by a newer version; it was left untouched."""

    code = "newer-format"
    exit = 14
    template = "{path} has format {found}, this version reads up to {supported}"
    default_hint = "update clawmem"


class LegacyStoreError(ClawmemError):
    """A store of the Rust 2.1.0 tools, whose float32 datasets current HDF5 refuses."""

    code = "legacy-store"
    exit = 14
    template = "{path} was written by the clawhdf5 2.1.0 tools"
    default_hint = "import it with `clawmem-migrate --clawhdf5 OLD.h5 --hdf5 NEW.h5`"


class ForkedError(ClawmemError):
    """An open store was used in a forked child, which must not write."""

    code = "forked"
    exit = 1
    template = "{path} was opened before a fork; the child may not use this handle"
    default_hint = "open the store again in the child"


class ClosedError(ClawmemError):
    """A closed store handle was used."""

    code = "closed"
    exit = 1
    template = "this handle on {path} is closed"


class ReadOnlyError(ClawmemError):
    """A write was asked of a read-only handle."""

    code = "read-only"
    exit = 2
    template = "{path} was opened read-only"


# ---------------------------------------------------------------- 15: exists, conflict


class ExistsError(ClawmemError):
    """The output is already there; it was kept."""

    code = "exists"
    exit = 15
    template = "{path} already exists and was kept"


class ConflictError(ClawmemError):
    """The same identity is stored with other content, or the fact has changed meanwhile."""

    code = "conflict"
    exit = 15
    template = "{detail}"


# ---------------------------------------------------------------- 16: held back


class HeldError(ClawmemError):
    """Stored, but not believed: the value was rejected before and waits for review."""

    code = "held"
    exit = 16
    template = "{detail}"
    default_hint = "see `clawmem review list`"


class SelfReviewError(ClawmemError):
    """Whoever proposed a fact cannot decide on it; the refusal is in the audit log."""

    code = "self-review"
    exit = 16
    template = "fact {id} was proposed by {actor}, who cannot review it"
    default_hint = "have somebody else decide, named by --actor"


# ---------------------------------------------------------------- 74: input and output


class StorageError(ClawmemError):
    """The operating system refused a read or write; the old state is kept."""

    code = "io"
    exit = 74
    template = "{path}: {detail}; the old state is kept"


class UnfinishedError(StorageError):
    """What was asked for is stored in the log, but the files could not be brought up to it."""

    code = "unfinished"
    template = "{path}: {detail}; the {operation} is in the log and reaches the store's files at the next checkpoint"
    default_hint = "run `clawmem flush-wal` once the cause is gone; do not repeat the command"


class AnswerLostError(StorageError):
    """Standard output could not be written; what the command did to the store stands."""

    code = "answer-lost"
    template = "standard output: {detail}; the answer is lost, but what the command did to the store stands"
    default_hint = "look at the store before you repeat a command that changes it"


class OutboxFullError(ClawmemError):
    """As many captured turns wait as an outbox may hold; this one was not kept."""

    code = "outbox-full"
    exit = 74
    template = "{path} holds {count} turns and takes no more; nothing was stored"
    default_hint = "run `clawmem outbox drain`"


class UncertainWriteError(ClawmemError):
    """The log was written but could not be synced: the entry may or may not survive a power loss."""

    code = "io-uncertain"
    exit = 74
    template = "{path}: {detail}; the last entry may or may not be stored"
    default_hint = "look for it before you save it again"


# ---------------------------------------------------------------- 130


class InterruptedByUserError(ClawmemError):
    """Control-C or SIGTERM."""

    code = "interrupted"
    exit = 130
    template = "interrupted; what was acknowledged is stored"


def table() -> list[type[ClawmemError]]:
    """Every error class in order of exit code, then code word. Raises ValueError if two classes share a code word."""
    found: list[type[ClawmemError]] = []
    todo: list[type[ClawmemError]] = [ClawmemError]
    while todo:
        kind = todo.pop()
        for child in kind.__subclasses__():
            found.append(child)
            todo.append(child)
    words = [kind.code for kind in found]
    if len(set(words)) != len(words):
        raise ValueError(f"code words are not unique: {sorted(word for word in words if words.count(word) > 1)}")
    return sorted(found, key=lambda kind: (kind.exit, kind.code))
