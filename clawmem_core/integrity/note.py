"""Checkpoint notes: a few signed lines to keep elsewhere, which show whether a store was rolled back or rewritten.

Invariants: a note is accepted only whole, in its one form, of bounded size and with a valid signature of the given
key. Form (C2SP signed-note, https://c2sp.org/signed-note), every line ended by a line feed:

    clawmem/<store id>
    <manifest number>
    <live records>
    <record root, base64>
    <chain value including this manifest, base64>
    <audit head, base64>

    — clawmem/<store id> <base64 of 4-byte key hash and 64-byte Ed25519 signature over the lines above the blank one>
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256

from clawmem_core.errors import NoteError
from clawmem_core.integrity.keys import PublicKey, SecretKey
from clawmem_core.integrity.manifest import Manifest, Seal, chain_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

MAX_BYTES: Final = 4096
_DASH: Final = "— "
_ED25519: Final = b"\n\x01"  # separates name and key in a key hash, and names the algorithm
_MAX_DIGITS: Final = 19


@dataclass(frozen=True)
class Note:
    """The content of a note: `number` of the manifest, live `records`, and three 32-byte hashes."""

    store_id: str
    number: int
    records: int
    record_root: bytes
    chain: bytes
    audit_head: bytes

    @property
    def origin(self) -> str:
        """First line, which is also the name of the key."""
        return f"clawmem/{self.store_id}"

    def text(self) -> str:
        """The lines that are signed."""
        hashes = (b64encode(value).decode() for value in (self.record_root, self.chain, self.audit_head))
        return "".join(f"{line}\n" for line in (self.origin, self.number, self.records, *hashes))


def of_manifest(manifest: Manifest, chain: bytes) -> Note:
    """The note of a manifest; `chain`: the chain value that includes it."""
    return Note(
        manifest.store_id, manifest.number, manifest.records, bytes.fromhex(manifest.record_root), chain,
        bytes.fromhex(manifest.audit_head),
    )  # fmt: skip


def key_hash(origin: str, key: PublicKey) -> bytes:
    """The four bytes by which a signature line names its key."""
    return sha256(origin.encode() + _ED25519 + key.raw).digest()[:4]


def make(note: Note, key: SecretKey) -> bytes:
    """The signed note."""
    text = note.text()
    signature = key_hash(note.origin, key.public) + key.sign(text.encode())
    return f"{text}\n{_DASH}{note.origin} {b64encode(signature).decode()}\n".encode()


def parse(data: bytes, key: PublicKey, path: str) -> Note:
    """The note in `data`, its signature checked; `path` is what errors name.

    Signatures of other keys are passed over, as the form demands. Raises NoteError.
    """
    if len(data) > MAX_BYTES:
        raise NoteError(path=path, detail=f"longer than {MAX_BYTES} bytes")
    try:
        text, blank, tail = data.decode().partition("\n\n")
    except UnicodeDecodeError:
        raise NoteError(path=path, detail="no checkpoint note") from None
    text += "\n"
    found = _lines(text)
    if not blank or found is None or found.text() != text:
        raise NoteError(path=path, detail="no checkpoint note")
    if not _signed(found, text.encode(), tail, key):
        raise NoteError(path=path, detail=f"no valid signature of key {key.key_id}")
    return found


def _lines(text: str) -> Note | None:
    lines = text.split("\n")
    if len(lines) != 7 or not lines[0].startswith("clawmem/"):
        return None
    numbers = lines[1:3]
    if not all(number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS for number in numbers):
        return None
    try:
        hashes = [b64decode(line, validate=True) for line in lines[3:6]]
    except ValueError:
        return None
    if any(len(value) != 32 for value in hashes):
        return None
    return Note(lines[0].removeprefix("clawmem/"), int(numbers[0]), int(numbers[1]), *hashes)


def _signed(note: Note, text: bytes, tail: str, key: PublicKey) -> bool:
    for line in tail.split("\n"):
        name, _, encoded = line.removeprefix(_DASH).partition(" ")
        if not line.startswith(_DASH) or name != note.origin:
            continue
        try:
            signature = b64decode(encoded, validate=True)
        except ValueError:
            continue
        if signature[:4] == key_hash(name, key) and len(signature) == 68 and key.verifies(signature[4:], text):
            return True
    return False


def compare(note: Note, manifest: Manifest, seal: Seal) -> str:
    """How a verified store stands to a note kept elsewhere.

    "same": the note is of this very checkpoint; "extended": the checkpoint noted is in the signed chain; "rewritten":
    the chain went another way since; "rolled-back": the store is older than the note; "other-store".
    """
    if note.store_id != manifest.store_id:
        return "other-store"
    if note.number > manifest.number:
        return "rolled-back"
    if chain_value(seal.hashes()[: note.number]) != note.chain:
        return "rewritten"
    return "same" if note.number == manifest.number else "extended"
