"""Signing checkpoints: what `checkpoint()` calls before it reads a store file and before it closes the new one.

Invariants: a signed store is signed again only after everything in it was found to be what was signed; a record's hash
is taken over from the checkpoint before only if that was verified here; a file never carries a seal that does not
describe it, or else verification fails, so nothing is laundered.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from clawmem_core import clock
from clawmem_core.errors import IntegrityError, InternalError, WrongKeyError
from clawmem_core.integrity import digests, manifest, note
from clawmem_core.integrity.check import check_file
from clawmem_core.integrity.content import Findings, Records, Rows
from clawmem_core.integrity.keys import SecretKey, load_secret
from clawmem_core.integrity.merkle import as_array
from clawmem_core.storage import fs, hdf5_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from clawmem_core.storage.paths import StorePaths


class Signing:
    """A key and what is known of the checkpoint that is being replaced.

    `rotate`: sign a store that another key signed. After `before`: `starts` (the store was unsigned) and `rotates`
    (another key signed it) say what the next seal does; `previous_key_id` names that key.
    """

    __slots__ = ("_hashes", "_key", "_known", "_pending", "previous_key_id", "rotate", "rotates", "starts")

    def __init__(self, key: SecretKey, rotate: bool = False) -> None:
        self._key, self.rotate = key, rotate
        self._hashes: list[bytes] = []
        self._known: dict[str, Rows] = {}  # checkpoint id -> rows whose leaves are right for it
        self._pending: dict[str, Rows] = {}
        self.previous_key_id = ""
        self.starts = True
        self.rotates = False

    @classmethod
    def from_file(cls, path: str, *, insecure: bool = False, rotate: bool = False) -> Signing:
        """With the secret key in a file. Raises KeyFileError."""
        return cls(load_secret(path, insecure), rotate)

    @property
    def key_id(self) -> str:
        """Name of the key that signs."""
        return self._key.public.key_id

    @property
    def news(self) -> list[str]:
        """What the owner of the store should know of the next seal: who did not mean it has been deceived."""
        if self.starts:
            return [f"the store was unsigned and is signed from this checkpoint on, with key {self.key_id}"]
        if self.rotates:
            return [
                f"the key was changed: {self.key_id} signs from this checkpoint on, no longer {self.previous_key_id}"
            ]
        return []

    def rotation(self, paths: StorePaths) -> int:
        """The key id, as a number, of the other key that signed the store and is about to be replaced; 0 for none.

        Asked before the checkpoint, so that the change of keys is in the audit log that it signs.
        """
        if not self.rotate:
            return 0
        fd = fs.open_existing(paths.real)
        if fd is None:
            return 0
        try:
            with hdf5_file.open_for_reading(fd, paths.real) as file:
                seal = manifest.read(file, Findings())
            signed = manifest.decode(seal.manifest) if seal is not None else None
        except ValueError:
            return 0  # `before` says what is wrong with it
        finally:
            fs.close(fd)
        other = signed is not None and signed.public_key != self._key.public.hex
        return int(signed.key_id, 16) if signed is not None and other else 0

    def before(self, file: Any, path: str, *, signed: bool = False) -> None:
        """Verify the store file that is to be replaced; the first time with all its records.

        `file`: the open HDF5 file. `signed`: its settings or its log say that it is signed. An unsigned file passes.
        Raises WrongKeyError, IntegrityError.
        """
        findings = Findings()
        seal = manifest.read(file, findings)
        self.starts, self.rotates, self._hashes = seal is None, False, []
        if seal is None and not signed and findings.valid:
            return
        if seal is None:
            raise _refused(path, findings, "it was signed, and the signature is gone")
        try:
            signed_manifest = manifest.decode(seal.manifest)
        except ValueError as error:
            raise _refused(path, findings, f"its manifest cannot be read: {error}") from None
        self.previous_key_id = signed_manifest.key_id
        self.rotates = signed_manifest.public_key != self._key.public.hex
        if self.rotates and not self.rotate:
            raise WrongKeyError(path=path, expected=signed_manifest.key_id, given=self.key_id)
        id = signed_manifest.checkpoint_id
        if id in self._pending:
            self._known = self._pending
        found = check_file(file, None if self.rotates else self._key.public, findings, self._known.get(id))
        if not findings.valid:
            raise _refused(path, findings, "it is not what was signed")
        if found.rows is not None:
            self._known = {id: found.rows}
        self._pending = {}
        self._hashes = seal.hashes()

    def seal(self, file: Any, path: str, changed: Iterable[int] | None = None) -> None:
        """Write /integrity into the new, otherwise finished HDF5 file.

        `changed`: ids of records whose texts or vector may differ from the file `before` saw (new ids need not be
        named); None hashes every record. Raises IntegrityError where the file does not hold what it should.
        """
        findings = Findings()
        settings = digests.settings(file, findings)
        records = Records(file, findings, settings.get("float16") == "int:1")
        known = next(iter(self._known.values()), None) if changed is not None else None
        rows = records.rows(known, frozenset(changed or ()))
        made = manifest.describe(
            file, rows, findings, hashes=self._hashes, key=self._key.public, signed_at=clock.now_us()
        )
        if findings.items:
            raise _refused(path, findings, "the new file cannot be signed")
        if len(rows.ids) > 1 and bool((np.diff(rows.ids) <= 0).any()):
            raise InternalError(detail="the records to sign are not in id order")
        data = made.encode()
        chain = manifest.chain_value([*self._hashes, sha256(data).digest()])
        signed_note = note.make(note.of_manifest(made, chain), self._key)
        earlier = as_array(self._hashes)
        manifest.write(file, manifest.Seal(data, self._key.sign(data), signed_note, earlier, rows.ids, rows.leaves))
        self._pending = {made.checkpoint_id: rows}


def _refused(path: str, findings: Findings, detail: str) -> IntegrityError:
    first = findings.items[0]["message"] if findings.items else ""
    count = len(findings.items)
    more = f" (and {count - 1} more findings)" if count > 1 else ""
    return IntegrityError(path=path, detail=f"{detail}{': ' if first else ''}{first}{more}; nothing was signed")
