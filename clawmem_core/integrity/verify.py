"""Verify a store at rest: signature, content, chain, log, derived files, and a note kept elsewhere.

Invariants: nothing is written, locked or repaired; the key is the caller's, never the file's; whatever is wrong with a
file of the store is a finding with a stable code, never an exception; `valid` is True only if there is no error among
the findings. The report is plain data, ready for JSON.
"""

from __future__ import annotations

import h5py

from clawmem_core import clock
from clawmem_core.errors import (
    ClawmemError,
    DamagedError,
    NewerFormatError,
    NoStoreError,
    NotAStoreError,
    NoteError,
)
from clawmem_core.integrity import digests, log_check, manifest, note, sidecars
from clawmem_core.integrity.check import Check, check_file
from clawmem_core.integrity.content import Findings
from clawmem_core.integrity.events import check_events
from clawmem_core.storage import fs, hdf5_file, schema
from clawmem_core.storage.checkpoint import identity_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from clawmem_core.integrity.keys import PublicKey
    from clawmem_core.storage.log_format import Identity
    from clawmem_core.storage.paths import StorePaths

_LOOKS: Final = 4  # at a log that does not go with the file, before that is believed
_WAIT: Final = 0.01  # seconds between them: a checkpoint may be renaming files
_SMALL: Final = 5000  # records up to which an index is always compared in full
_COMPARISONS: Final = {
    "rewritten": "the store went another way than the note: it was restored and written again",
    "rolled-back": "the store is older than the note",
    "other-store": "the note is of another store",
}


def verify(
    paths: StorePaths, key: PublicKey, *, note_path: str | None = None, strict: bool = False, full: bool = False
) -> dict[str, Any]:
    """The report on a store; its `valid` decides the exit code.

    `note_path`: file with a checkpoint note to compare with. `strict`: entries in the log are an error. `full`: the
    index is compared down to vectors and words, as that of a small store always is. Raises NoStoreError, and NoteError
    for a note that is unreadable or not signed by `key`; StorageError where the operating system refuses a read.
    """
    kept = None if note_path is None else _read_note(note_path, key)
    paths.require_file()
    for look in range(_LOOKS):
        log_fd = fs.open_existing(paths.log)  # before the HDF5 file, as every reader does
        try:
            h5_fd = fs.open_existing(paths.real)
            if h5_fd is None:
                raise NoStoreError(path=paths.given)
            try:
                report = _Verification(paths, key, strict, full).look(h5_fd, log_fd, kept, last=look == _LOOKS - 1)
            finally:
                fs.close(h5_fd)
        finally:
            if log_fd is not None:
                fs.close(log_fd)
        if report is not None:
            return report
        clock.sleep(_WAIT)
    raise AssertionError("the last look always reports")


def _read_note(path: str, key: PublicKey) -> note.Note:
    try:
        data = fs.read_all(path, note.MAX_BYTES + 1)
    except ClawmemError as error:
        raise NoteError(path=path, detail=error.fields.get("detail", error.message)) from None
    if data is None:
        raise NoteError(path=path, detail="no such file")
    return note.parse(data, key, path)


class _Verification:
    """One look at the files."""

    def __init__(self, paths: StorePaths, key: PublicKey, strict: bool, full: bool) -> None:
        self.paths, self.key, self.strict, self.full = paths, key, strict, full
        self.findings = Findings()
        self.index_compared = "nothing"

    def look(self, h5_fd: int, log_fd: int | None, kept: note.Note | None, last: bool) -> dict[str, Any] | None:
        """The report, or None to look again because file and log do not go together (yet)."""
        try:
            file = hdf5_file.open_for_reading(h5_fd, self.paths.given)
        except (NotAStoreError, DamagedError) as error:
            self.findings.add("file-unreadable", error.message)
            return self._document(Check(), 0, {})
        try:
            return self._of_file(file, h5_fd, log_fd, kept, last)
        finally:
            file.close()

    def _of_file(
        self, file: h5py.File, h5_fd: int, log_fd: int | None, kept: note.Note | None, last: bool
    ) -> dict[str, Any] | None:
        identity = self._identity(file)
        if not last and identity is not None and not log_check.belongs(log_fd, identity):
            return None
        checkpoint_id = identity.checkpoint_id if identity is not None else bytes(16)
        watch = sidecars.IndexCheck.open(self.paths, h5_fd, checkpoint_id, self.findings)
        try:
            found = check_file(file, self.key, self.findings, copies=watch.copy, observe=watch.observe)
            self._beside(h5_fd, log_fd, found, watch)
        finally:
            watch.close()
        entries = 0
        if identity is None:
            self.findings.add("identity-unreadable", "what the file says of itself and its log cannot be read")
        else:
            entries = log_check.check_log(log_fd, identity, self.findings, signed=found.seal is not None)
        if entries and self.strict:
            self.findings.add("log-unsigned", f"{entries} entries of the log are not signed", entries=entries)
        return self._document(found, entries, self._checkpoint(found, kept))

    def _beside(self, h5_fd: int, log_fd: int | None, found: Check, watch: sidecars.IndexCheck) -> None:
        """Check the events, and compare what lies beside the file with it; the file has to load for that."""
        try:
            with schema.load(h5_fd, self.paths.given) as columns:
                check_events(columns.events, self.findings, self.paths.given)
                self.index_compared = watch.finish(found, columns, self.full or columns.count <= _SMALL)
                sidecars.check_keys(self.paths, columns, self.findings)
                sidecars.check_ann(self.paths, columns, self.findings)
                if log_fd is not None:
                    log_check.check_header(log_fd, identity_of(columns), self.findings)
        except (DamagedError, NotAStoreError, NewerFormatError) as error:
            self.findings.add("file-damaged", error.message)

    @staticmethod
    def _identity(file: h5py.File) -> Identity | None:
        unheard = Findings()  # check_file reports the same again
        settings = digests.settings(file, unheard)
        checkpoint_id = manifest.meta_bytes(file, "checkpoint_id", 16, unheard)
        return log_check.identity_of(settings, checkpoint_id, manifest.meta_bytes(file, "log_state", 104, unheard))

    def _checkpoint(self, found: Check, kept: note.Note | None) -> dict[str, Any]:
        """Check the note in the file, and compare with one kept elsewhere."""
        signed, seal = found.manifest, found.seal
        if signed is None or seal is None:
            if kept is not None:
                self.findings.add("note-uncompared", "there is no signed checkpoint to compare the note with")
            return {}
        mine = note.of_manifest(signed, manifest.chain_value(seal.hashes()))
        try:
            if note.parse(seal.note, self.key, "/integrity/note") != mine:
                self.findings.add("note-changed", "the note in the file is not that of its manifest")
        except NoteError as error:
            self.findings.add("note-changed", f"the note in the file: {error.fields['detail']}")
        document = {"number": signed.number, "records": signed.records, "root": signed.record_root}
        if kept is None:
            return document
        comparison = note.compare(kept, signed, seal)
        if comparison not in ("same", "extended"):
            self.findings.add(f"note-{comparison}", _COMPARISONS[comparison], note=kept.number, store=signed.number)
        return {**document, "comparison": comparison, "note_number": kept.number, "note_records": kept.records}

    def _document(self, found: Check, entries: int, checkpoint: dict[str, Any]) -> dict[str, Any]:
        signed = found.manifest
        note_text = found.seal.note.decode("utf-8", "replace") if found.seal is not None else None
        return {
            "valid": self.findings.valid,
            "signed": found.seal is not None,
            "path": self.paths.given,
            "store_id": signed.store_id if signed is not None else None,
            "key_id": signed.key_id if signed is not None else None,
            "records_checked": len(found.rows.ids) if found.rows is not None else 0,
            "changed": found.changed,
            "missing": found.missing,
            "added": found.added,
            "reordered": found.reordered,
            "fields": {str(id): names for id, names in sorted(found.fields.items())},
            "changed_settings": found.changed_settings,
            "wal_entries_unsigned": entries,
            "index_compared": self.index_compared,
            "checkpoint": checkpoint or None,
            "note": note_text,
            "findings": self.findings.items,
        }
