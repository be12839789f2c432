"""What is wrong with a store, and what can be done about it: plan first, then apply.

Invariants: `examine` only reads; `repair` backs up every file before it is changed, never makes data up, and leaves a
store that cannot be repaired as it is, saying so; codes of findings are stable. Whether the content is what was signed
is for `verify` to say: a checksum of a derived file proves nothing against somebody who can recompute it.

| code | severity | repair |
|---|---|---|
| file-damaged | fatal | none: what the HDF5 file held is not recoverable from here; everything is kept |
| counters-wrong | error | a checkpoint counts anew |
| event-wrong | error | none: an event is not what its id says; `purge` removes it |
| log-missing, log-empty | warning | a fresh log |
| log-torn | warning | cut behind the last whole entry |
| log-corrupt, log-unsynced-lost | error | keep the entries before the damage; ids behind it are never given again |
| log-header-bad, log-foreign, log-other-checkpoint, log-mark-broken | error | set aside, fresh log |
| log-undecodable | error | as log-corrupt |
| log-already-applied | warning | finish the interrupted checkpoint |
| log-legacy | warning | take its entries in |
| index-damaged, keys-damaged, keys-differ | warning | rebuilt from the HDF5 file |
| index-missing, index-stale, keys-missing, keys-stale | notice | the same; a copied store is like that, and sound |
| ann-damaged, ann-differs, ann-stale | warning | removed; `clawmem index --ann` makes it again |
| temp-left | warning | moved aside |
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from clawmem_core import clock
from clawmem_core.errors import (
    ClawmemError,
    DamagedError,
    LegacyStoreError,
    NewerFormatError,
    NotAStoreError,
)
from clawmem_core.integrity.content import Findings
from clawmem_core.integrity.events import check_events
from clawmem_core.integrity.sidecars import check_ann, check_keys
from clawmem_core.search.index_reader import IndexReader, UnusableIndex
from clawmem_core.storage import derived, fs, log_reports, log_scan, ops
from clawmem_core.storage.atomic import AtomicFile, stale_temps
from clawmem_core.storage.checkpoint import identity_of
from clawmem_core.storage.columns import BLOCK, Columns
from clawmem_core.storage.log_format import HEADER_SIZE, Identity, LogHeader, LogState
from clawmem_core.storage.paths import StorePaths
from clawmem_core.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOG_WARNINGS = ("log-missing", "log-empty", "log-torn", "log-already-applied", "log-legacy")
_DERIVED = (
    "index-missing", "index-damaged", "index-stale", "keys-missing", "keys-damaged", "keys-stale", "keys-differ",
)  # fmt: skip
_ANN = ("ann-damaged", "ann-stale", "ann-differs")


@dataclass
class Diagnosis:
    """Findings (code, severity, message, file), and how many entries of file and log can be read."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    records_in_file: int | None = None
    entries_in_log: int = 0
    backups: list[str] = field(default_factory=list)
    repaired: bool = False

    @property
    def sound(self) -> bool:
        """Whether nothing worse than a notice was found, or nothing is left of it."""
        return self.repaired or all(finding["severity"] == "notice" for finding in self.findings)

    @property
    def codes(self) -> set[str]:
        """Codes of the findings."""
        return {finding["code"] for finding in self.findings}

    def document(self, path: str) -> dict[str, Any]:
        """The document of `clawmem doctor`."""
        return {
            "path": path,
            "findings": self.findings,
            "records_in_file": self.records_in_file,
            "entries_in_log": self.entries_in_log,
            "repaired": self.repaired,
            "backups": self.backups,
        }


def examine(paths: StorePaths) -> Diagnosis:
    """Look at every file of a store and change none.

    Raises NoStoreError, LegacyStoreError, NewerFormatError, StorageError, and NotAStoreError where nothing beside the
    file says that it ever was one.
    """
    paths.require_file()
    found, diagnosis = Findings(), Diagnosis()
    diagnosis.findings = found.items
    try:
        with derived.open_columns(paths) as columns:
            diagnosis.records_in_file = columns.count
            _read_everything(columns)
            check_events(columns.events, found, paths.real)
            identity = identity_of(columns)
            _counters(columns, identity.state, found, paths)
            diagnosis.entries_in_log = _log(paths, identity, found)
            _derived_files(paths, columns, found)
    except (LegacyStoreError, NewerFormatError):
        raise
    except NotAStoreError as error:
        if not any(map(fs.exists, (paths.log, paths.index, paths.keys))):
            raise
        _beyond_repair(paths, error, found)
    except DamagedError as error:
        _beyond_repair(paths, error, found)
    for path in stale_temps(paths):
        found.add(
            "temp-left", f"{os.path.basename(path)} was left by a process that is gone", severity="warning", file=path
        )
    return diagnosis


def _beyond_repair(paths: StorePaths, error: ClawmemError, found: Findings) -> None:
    found.add(
        "file-damaged",
        f"{error.message}; what it held is not recoverable from here. Restore a snapshot; every file is kept as it is",
        severity="fatal",
        file=paths.real,
        recoverable=False,
    )


def _read_everything(columns: Columns) -> None:
    """Read every column once. Raises DamagedError where one cannot be read."""
    for start in range(0, columns.count, BLOCK):
        stop = min(start + BLOCK, columns.count)
        for texts in (
            columns.chunks, columns.source_channel, columns.session_ids, columns.tags, columns.keys, columns.source_ids,
        ):  # fmt: skip
            texts.texts(start, stop)
        columns.embeddings.read(start, stop)
    if not np.isfinite(columns.timestamps).all():
        raise DamagedError(path=columns.path, detail="timestamps hold a value that is not finite")


def _counters(columns: Columns, state: LogState, found: Findings, paths: StorePaths) -> None:
    right = (columns.count, columns.active)
    if columns.format and (state.rows, state.active) != right:
        message = (
            f"the file says it holds {state.rows} records, {state.active} of them live; it holds {right[0]}, {right[1]}"
        )
        found.add("counters-wrong", message, file=paths.real)


# ---------------------------------------------------------------- the log


def _log(paths: StorePaths, identity: Identity, found: Findings) -> int:
    """Examine the log; returns the entries that apply."""

    def note(code: str, **details: Any) -> None:
        severity = "warning" if code in _LOG_WARNINGS else "error"
        found.add(code, log_reports.MESSAGES[code], severity=severity, file=paths.log, **details)

    fd = fs.open_existing(paths.log, fs.RDONLY | fs.NOFOLLOW)
    if fd is None:
        note("log-missing")
        return 0
    try:
        size = fs.fstat(fd).st_size
        head = fs.pread(fd, HEADER_SIZE, 0)
        header = LogHeader.unpack(head, paths.log)
        if header is None:
            kind = log_scan.kind_without_header(fd, head, size)
            codes = {log_scan.EMPTY: "log-empty", log_scan.LEGACY: "log-legacy"}
            note(codes.get(kind, "log-header-bad"))
            return 0
        kind = log_scan.kind_of_log(header, identity)
        if kind in (log_scan.FOREIGN, log_scan.OTHER):
            note("log-foreign" if kind == log_scan.FOREIGN else "log-other-checkpoint")
            return 0
        replay = log_scan.replay(fd, header, identity if kind == log_scan.APPLIED else None, size)
        if not replay.found:
            note("log-mark-broken")
            return 0
        if kind == log_scan.APPLIED:
            note("log-already-applied")
        if replay.offset < size:
            tail = log_scan.examine_tail(fd, header.salt, replay.offset, size, replay.state)
            note(tail.code, offset=replay.offset, bytes=tail.lost)
        return _entries(replay.frames, found, paths)
    finally:
        fs.close(fd)


def _entries(frames: Iterable[Any], found: Findings, paths: StorePaths) -> int:
    count = 0
    for frame in frames:
        try:
            for op, _, value in ops.decode(frame.payload):
                if op != ops.AUDIT:
                    count += len(value) if op in (ops.DELETE, ops.UNDELETE, ops.PURGE) else 1
        except ops.UnknownOperation as error:
            raise NewerFormatError(path=paths.log, found=str(error), supported="1.0") from None
        except ops.BadPayload as error:
            message = f"the entry at byte {frame.offset} cannot be read ({error}); those behind it are not applied"
            found.add("log-undecodable", message, file=paths.log, offset=frame.offset)
            break
    return count


# ---------------------------------------------------------------- derived files


def _derived_files(paths: StorePaths, columns: Columns, found: Findings) -> None:
    reason = _index_fault(paths, columns.fd)
    if reason:
        kind = {"missing": "missing", "of another checkpoint": "stale"}.get(reason, "damaged")
        message = f"the search index is {reason if kind != 'damaged' else f'damaged ({reason})'}; readers do without it"
        found.add(f"index-{kind}", message, severity="warning" if kind == "damaged" else "notice", file=paths.index)
    if not fs.exists(paths.keys):
        message = "the key table is missing; saves with keys and events are slow until it is rebuilt"
        found.add("keys-missing", message, severity="notice", file=paths.keys)
    before = len(found.items)
    check_keys(paths, columns, found)
    check_ann(paths, columns, found)
    for finding in found.items[before:]:
        finding["severity"] = "notice" if finding["code"].endswith("-stale") else "warning"


def _index_fault(paths: StorePaths, h5_fd: int) -> str:
    """Why the index cannot be used, "" for a whole one."""
    try:
        reader = IndexReader.open(paths.index, h5_fd)
    except UnusableIndex as reason:
        return str(reason)
    try:
        reader.sections.check(0, reader.header.pages_offset)
    except UnusableIndex as reason:
        return str(reason)
    finally:
        reader.close()
    return ""


# ---------------------------------------------------------------- repair


def repair(paths: StorePaths, lock_timeout: float = 0.0, actor: str | None = None, signing: Any = None) -> Diagnosis:
    """Examine, back up, repair. `repaired` says whether nothing is left; what cannot be repaired stays as it is.

    Raises as `examine`, LockedError, SigningKeyRequiredError (a signed store whose counters are wrong).
    """
    diagnosis = examine(paths)
    codes = diagnosis.codes
    if not codes or "file-damaged" in codes:
        diagnosis.repaired = not codes
        return diagnosis
    log_changes = any(code.startswith("log-") for code in codes)
    if log_changes and fs.exists(paths.log):
        diagnosis.backups.append(_copy(paths.log))
    if "counters-wrong" in codes:
        diagnosis.backups.append(_copy(paths.real))
    with Writer.open(paths.real, lock_timeout, actor) as writer:
        for path in stale_temps(paths):
            diagnosis.backups.append(_move_aside(paths, path))
        if log_changes:
            _reread_log(writer)
        if "counters-wrong" in codes:
            writer.checkpoint(signing)
        elif codes & set(_DERIVED) or log_changes:
            with derived.open_columns(paths) as columns:
                derived.write(paths, columns)
        if codes & set(_ANN):
            fs.unlink(paths.ann)
    left = examine(paths)
    diagnosis.repaired = not left.findings
    diagnosis.records_in_file, diagnosis.entries_in_log = left.records_in_file, left.entries_in_log
    for finding in diagnosis.findings:
        finding["repaired"] = finding["code"] not in left.codes
    diagnosis.findings += [dict(finding, repaired=False) for finding in left.findings if finding["code"] not in codes]
    return diagnosis


def _reread_log(writer: Writer) -> None:
    """Have the writer verify the whole log, which repairs it, and reject the first frame that does not decode.

    Opening the log looks at its end only.
    """
    for frame in writer.log.frames():
        try:
            list(ops.decode(frame.payload))
        except ops.BadPayload:
            writer.log.reject(frame)
            return


def _backup_name(path: str) -> str:
    return f"{path}.backup-{clock.now_us()}-{clock.random_bytes(4).hex()}"


def _copy(path: str) -> str:
    """A durable copy of a file beside it; returns its path."""
    target = _backup_name(path)
    fd = fs.open_file(path, fs.RDONLY | fs.NOFOLLOW)
    try:
        stat = fs.fstat(fd)
        with AtomicFile(target, stat) as file:
            fs.copy_range(fd, file.fd, stat.st_size)
            file.commit()
    finally:
        fs.close(fd)
    return target


def _move_aside(paths: StorePaths, path: str) -> str:
    target = _backup_name(f"{paths.real}.left")
    fs.replace(path, target)
    fs.sync_directory(paths.directory)
    return target
