"""The signed manifest of a checkpoint, and the group /integrity that carries it.

Invariants: a manifest has one canonical byte string (sorted keys, no blanks, ASCII); every field follows from the file
alone but for its number, the chain of its predecessors, the key and the time; `chain` commits to every earlier
manifest in order. Layout and hash inputs: docs/format.md § 7.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from hashlib import sha256

import numpy as np

from clawmem_core.contract.canonical import canonical_ascii
from clawmem_core.errors import DuplicateKeyError, InvalidJsonError
from clawmem_core.integrity import content, digests
from clawmem_core.integrity.content import Findings, Rows
from clawmem_core.integrity.keys import PublicKey
from clawmem_core.integrity.merkle import as_list, tree_root
from clawmem_core.storage.hdf5_file import FAULTS
from clawmem_core.strict_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from numpy.typing import NDArray

FORMAT: Final = "clawmem-manifest-1"
ZERO: Final = bytes(32)
_LINK: Final = b"\x03"  # first byte of what a chain value hashes
_MAX_MANIFEST, _MAX_NOTE = 1 << 24, 4096  # bytes
_HEX: Final = {"checkpoint_id": 32, "record_root": 64, "leaves": 64, "ids": 64, "audit_head": 64, "previous": 64,
               "chain": 64, "public_key": 64, "key_id": 16}  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """What a signature covers. Hashes and ids are lower-case hexadecimal.

    `number` counts manifests of the store from 1; `rows` all records, `records` the live ones; `record_root` the Merkle
    root over the live ones in id order; `leaves`, `ids` SHA-256 of the datasets of /integrity; `settings` every
    attribute of /meta; `tables` row count and digest by name; `columns` digest by dataset; `previous` SHA-256 of the
    manifest before; `chain` the chain value over all before; `signed_at` microseconds since the epoch.
    """

    store_id: str
    checkpoint_id: str
    generation: int
    number: int
    rows: int
    records: int
    record_root: str
    leaves: str
    ids: str
    settings: dict[str, str]
    tables: dict[str, dict[str, Any]]
    columns: dict[str, str]
    audit_head: str
    audit_lines: int
    previous: str
    chain: str
    public_key: str
    key_id: str
    signed_at: int

    def encode(self) -> bytes:
        """The canonical bytes, which are signed and stored."""
        return canonical_ascii({"format": FORMAT, **asdict(self)})


def decode(data: bytes) -> Manifest:
    """The manifest in `data`. Raises ValueError where it is none, or not in canonical form."""
    try:
        document = parse_json(data, refuse_duplicates=True)
    except (InvalidJsonError, DuplicateKeyError) as error:
        raise ValueError(error.message) from None
    names = {field.name: field.type for field in fields(Manifest)}
    if not isinstance(document, dict) or document.keys() != names.keys() | {"format"}:
        raise ValueError("it has not the fields of a manifest")
    if document.pop("format") != FORMAT:
        raise ValueError("it is of another format")
    kinds = {"str": str, "int": int}
    for name, value in document.items():
        whole = isinstance(value, kinds.get(str(names[name]), dict))
        if not whole or (isinstance(value, str) and name in _HEX and not _is_hex(value, _HEX[name])):
            raise ValueError(f"{name} is not as it must be")
    if not all(isinstance(value, str) for part in ("settings", "columns") for value in document[part].values()):
        raise ValueError("a digest is no text")
    if not all(isinstance(table, dict) and table.keys() == {"rows", "digest"} for table in document["tables"].values()):
        raise ValueError("a table is not as it must be")
    found = Manifest(**document)
    if found.encode() != data:
        raise ValueError("it is not in canonical form")
    return found


def _is_hex(text: str, digits: int) -> bool:
    return len(text) == digits and not set(text) - set("0123456789abcdef")


# ---------------------------------------------------------------- /integrity


class Seal:
    """What /integrity holds. `chain`: SHA-256 of every earlier manifest, oldest first, u8[number - 1, 32]."""

    __slots__ = ("chain", "ids", "leaves", "manifest", "note", "signature")

    def __init__(
        self, manifest: bytes, signature: bytes, note: bytes, chain: NDArray[np.uint8], ids: NDArray[np.int64],
        leaves: NDArray[np.uint8],
    ) -> None:  # fmt: skip
        self.manifest, self.signature, self.note = manifest, signature, note
        self.chain, self.ids, self.leaves = chain, ids, leaves

    def hashes(self) -> list[bytes]:
        """SHA-256 of every manifest, this one last."""
        return [*as_list(self.chain), sha256(self.manifest).digest()]


def chain_value(hashes: list[bytes]) -> bytes:
    """The value that commits to manifests in order: from 32 zero bytes, SHA-256(0x03 | value | manifest hash)."""
    value = ZERO
    for item in hashes:
        value = sha256(_LINK + value + item).digest()
    return value


def id_runs(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ascending ids as rows (first id, count) of unbroken runs, i8[R, 2]."""
    if not len(ids):
        return np.zeros((0, 2), "<i8")
    starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 2) != 1)
    return np.stack([ids[starts], np.diff(starts, append=len(ids))], axis=1).astype("<i8")


def ids_of_runs(runs: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The ids that `id_runs` was given. Raises ValueError where the runs do not hold `count` ids."""
    sizes = runs[:, 1]
    if (sizes < 1).any() or (sizes > count).any() or int(sizes.sum()) != count:
        raise ValueError("the id runs do not add up")
    before = np.cumsum(sizes) - sizes
    ids: NDArray[np.int64] = np.repeat(runs[:, 0] - before, sizes) + np.arange(count)
    return ids


def write(file: Any, seal: Seal) -> None:
    """Put a seal into an HDF5 file that has none."""
    group = file.create_group("integrity")
    group.create_dataset("leaves", data=seal.leaves)
    group.create_dataset("id_runs", data=id_runs(seal.ids))
    group.create_dataset("chain", data=seal.chain)
    for name in ("manifest", "signature", "note"):
        group.create_dataset(name, data=np.frombuffer(getattr(seal, name), np.uint8))


def read(file: Any, findings: Findings) -> Seal | None:
    """The seal of a file, or None: without a finding where there is no /integrity, with one where it is unreadable."""
    try:
        present = "integrity" in file
    except FAULTS:
        present = True
    if not present:
        return None
    group = content.open_group(file, "integrity")
    try:
        manifest = _bytes(group, "manifest", findings, _MAX_MANIFEST)
        signature, note = _bytes(group, "signature", findings, 64), _bytes(group, "note", findings, _MAX_NOTE)
        leaves, chain = (_array(group, name, "u1", 32, findings) for name in ("leaves", "chain"))
        ids = ids_of_runs(_array(group, "id_runs", "<i8", 2, findings), len(leaves))
    except FAULTS as error:
        findings.add("integrity-unreadable", f"/integrity cannot be read: {error}", dataset="/integrity")
        return None
    return Seal(manifest, signature, note, chain, ids, leaves)


def _bytes(group: Any, name: str, findings: Findings, limit: int) -> bytes:
    dataset = content.open_dataset(group, name, findings)
    if dataset is None or dataset.dtype != np.uint8 or len(dataset.shape) != 1 or dataset.shape[0] > limit:
        raise ValueError(f"{name} is no byte string of at most {limit} bytes")
    return bytes(dataset[()].tobytes())


def _array(group: Any, name: str, kind: str, width: int, findings: Findings) -> NDArray[Any]:
    dataset = content.open_dataset(group, name, findings)
    if dataset is None or dataset.dtype != np.dtype(kind) or len(dataset.shape) != 2 or dataset.shape[1] != width:
        raise ValueError(f"{name} is no array of rows of {width}")
    values: NDArray[Any] = np.ascontiguousarray(dataset[()])
    return values


# ---------------------------------------------------------------- from a file


def describe(
    file: Any, rows: Rows, findings: Findings, *, hashes: list[bytes], key: PublicKey, signed_at: int
) -> Manifest:
    """The manifest of what `file` holds now: `rows` its records, `hashes` those of all earlier manifests."""
    settings = digests.settings(file, findings)
    columns = digests.columns(file, findings)
    state = meta_bytes(file, "log_state", 104, findings)
    lines = content.open_dataset(content.open_group(file, "audit"), "lines", findings)
    generation = settings.get("ann_generation", "int:0").removeprefix("int:")
    return Manifest(
        store_id=settings.get("store_id", "text:").removeprefix("text:"),
        checkpoint_id=meta_bytes(file, "checkpoint_id", 16, findings).hex(),
        generation=int(generation) if generation.isdecimal() else 0,
        number=len(hashes) + 1,
        rows=len(rows.ids),
        records=len(rows.levels[0]),
        record_root=tree_root(rows.levels).hex(),
        leaves=sha256(rows.leaves.tobytes()).hexdigest(),
        ids=sha256(id_runs(rows.ids).tobytes()).hexdigest(),
        settings=settings,
        tables=digests.tables(file, findings),
        columns=columns,
        audit_head=state[72:].hex(),
        audit_lines=len(lines) if lines is not None and lines.shape else 0,
        previous=(hashes[-1] if hashes else ZERO).hex(),
        chain=chain_value(hashes).hex(),
        public_key=key.hex,
        key_id=key.key_id,
        signed_at=signed_at,
    )


def meta_bytes(file: Any, name: str, size: int, findings: Findings) -> bytes:
    """A byte dataset of /meta, or zeros where it is not there in full."""
    dataset = content.open_dataset(content.open_group(file, "meta"), name, findings)
    if dataset is None or dataset.shape != (size,) or dataset.dtype != np.uint8:
        return bytes(size)
    try:
        return bytes(dataset[()].tobytes())
    except FAULTS:
        return bytes(size)
