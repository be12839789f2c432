"""Hold what a file contains against what was signed, and name every difference.

Invariants: nothing that the manifest says is believed before its signature holds under the given key, though the
comparison goes on for the sake of the report; any difference is an error finding; a field is named as changed where
putting another value in its place gives exactly the signed hash, or, for the embedding, where nothing else differs.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from clawmem_core.integrity import digests, manifest
from clawmem_core.integrity.content import NUMBERS, TEXTS, Findings, Records, Rows
from clawmem_core.integrity.keys import PublicKey
from clawmem_core.integrity.merkle import RECORD, as_list, encode_rows, hash_rows
from clawmem_core.storage.columns import norms_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final

    from numpy.typing import NDArray

    from clawmem_core.integrity.content import Observer
    from clawmem_core.integrity.manifest import Manifest, Seal
    from clawmem_core.model import Record

    #: a copy of a record from elsewhere (the index), by id
    Copies = Callable[[int], Record | None]

_EXPLAINED: Final = 100  # changed records whose fields are looked for
_FIELDS: Final = tuple(report_name for _, _, report_name in (*NUMBERS, *TEXTS))
_TABLE_CODES: Final = {"sessions": "sessions-changed"}  # the other tables are the graph
_COLUMN_CODES: Final = {"events": "events-changed", "audit": "audit-changed", "meta": "settings-changed"}


class Check:
    """What was found out about a file. Ids are record ids; `fields`: names by id, where known."""

    __slots__ = ("added", "changed", "changed_settings", "fields", "manifest", "missing", "reordered", "rows", "seal")

    def __init__(self) -> None:
        self.seal: Seal | None = None
        self.manifest: Manifest | None = None
        self.rows: Rows | None = None
        self.changed: list[int] = []
        self.missing: list[int] = []
        self.added: list[int] = []
        self.reordered: list[int] = []
        self.fields: dict[int, list[str]] = {}
        self.changed_settings: list[dict[str, Any]] = []


def check_file(
    file: Any, key: PublicKey | None, findings: Findings, known: Rows | None = None, copies: Copies | None = None,
    observe: Observer | None = None,
) -> Check:  # fmt: skip
    """Compare an open HDF5 file with its signed manifest.

    `key`: None takes the one the manifest names, which shows damage but no forgery. `known`: rows of this very
    checkpoint that were checked before; their texts and vectors are not read again. `copies`, `observe`: another source
    of the records, and who else wants to see the texts. No seal: a finding "unsigned".
    """
    found = Check()
    found.seal = seal = manifest.read(file, findings)
    if seal is None:
        if findings.valid:
            findings.add(
                "unsigned", "the store carries no signature: it was never signed, or the signature was removed"
            )
        return found
    if key is not None and not key.verifies(seal.signature, seal.manifest):
        findings.add("signature-invalid", f"no valid signature of key {key.key_id} over the manifest")
    try:
        found.manifest = signed = manifest.decode(seal.manifest)
    except ValueError as error:
        findings.add("manifest-invalid", f"the manifest cannot be read: {error}")
        return found
    _key(signed, seal, key, findings)
    hashes = as_list(seal.chain)
    if (signed.number, signed.chain) != (len(hashes) + 1, manifest.chain_value(hashes).hex()):
        findings.add("chain-changed", "the chain of earlier manifests is not the signed one")
    records = Records(file, findings, signed.settings.get("float16") == "int:1")
    found.rows = rows = records.rows(known, observe=observe)
    holds = manifest.describe(
        file, rows, findings, hashes=hashes, key=PublicKey(bytes.fromhex(signed.public_key)), signed_at=signed.signed_at
    )
    _records(found, records, signed, holds, findings, copies)
    _settings(found, signed, holds, findings)
    _everything_else(signed, holds, findings)
    if findings.valid and holds.encode() != seal.manifest:
        findings.add("manifest-differs", "the file is not what the manifest describes")
    return found


def _key(signed: Manifest, seal: Seal, key: PublicKey | None, findings: Findings) -> None:
    """Is the key the manifest names the one that was given, or at least the one that signed it?"""
    if key is not None:
        if signed.public_key != key.hex:
            findings.add("other-key", f"signed with key {signed.key_id}, not with {key.key_id}", key_id=signed.key_id)
        return
    own = PublicKey(bytes.fromhex(signed.public_key))
    if not own.verifies(seal.signature, seal.manifest):
        findings.add("signature-invalid", f"no valid signature of key {own.key_id} over the manifest")


# ---------------------------------------------------------------- records


def _records(
    found: Check, records: Records, signed: Manifest, holds: Manifest, findings: Findings, copies: Copies | None
) -> None:
    """Which records changed, are missing, were added or reordered."""
    assert found.seal is not None and found.rows is not None
    seal, rows = found.seal, found.rows
    stored = sha256(seal.leaves.tobytes()).hexdigest(), sha256(manifest.id_runs(seal.ids).tobytes()).hexdigest()
    if stored != (signed.leaves, signed.ids):
        findings.add("leaves-changed", "the record hashes in /integrity are not the signed ones")
    if (holds.leaves, holds.ids) == (signed.leaves, signed.ids):
        if holds.record_root != signed.record_root:
            findings.add("root-changed", "the record root is not the signed one")
        return
    at = _find(seal.ids, rows.ids)
    is_signed = at >= 0
    _, first = np.unique(rows.ids, return_index=True)
    repeated = np.ones(len(rows.ids), bool)
    repeated[first] = False
    same = is_signed & ~repeated
    if len(seal.ids):
        differs = same & (rows.leaves != seal.leaves[at]).any(axis=1)
        found.changed = rows.ids[differs].tolist()
        for row in np.flatnonzero(differs)[:_EXPLAINED].tolist():
            names = rows.unreadable.get(row) or _fields(records, rows, row, seal.leaves[at[row]].tobytes(), copies)
            if names:
                found.fields[int(rows.ids[row])] = names
    found.added = rows.ids[~same].tolist()
    found.missing = np.setdiff1d(seal.ids, rows.ids).tolist()
    kept = rows.ids[same]
    found.reordered = kept[kept != np.sort(kept)].tolist()
    _renumbered(found, records, rows, seal)
    for code, ids in (("record-changed", found.changed), ("record-missing", found.missing),
                      ("record-added", found.added), ("record-reordered", found.reordered)):  # fmt: skip
        if ids:
            findings.add(code, f"{_named(ids)} {code.partition('-')[2]}", records=ids)


def _find(ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each wanted id stands in `ids`, -1 where it does not."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    at = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    return np.where(ids[at] == wanted, at, -1)


def _named(ids: list[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"record{'s' if len(ids) > 1 else ''} {shown}{', …' if len(ids) > 10 else ''}:"


def _renumbered(found: Check, records: Records, rows: Rows, seal: Seal) -> None:
    """Added rows that are a missing record under another id, where it stood before."""
    missing = set(found.missing)
    for row in np.flatnonzero(np.isin(rows.ids, found.added))[:_EXPLAINED].tolist():
        id = int(seal.ids[row]) if row < len(seal.ids) else -1
        if id in missing and _leaf(_values(records, rows, row) | {"index": id}) == seal.leaves[row].tobytes():
            found.fields[int(rows.ids[row])] = found.fields[id] = ["index"]


def _fields(records: Records, rows: Rows, row: int, leaf: bytes, copies: Copies | None) -> list[str]:
    """Names of the fields whose change explains a leaf that is not the signed one; [] where nothing does."""
    mine = _values(records, rows, row)
    vector = np.frombuffer(mine["embedding"], records.vector_type)[None]
    guesses: tuple[tuple[str, Any], ...] = (
        ("deleted", int(mine["deleted"] == 0)), ("activation", 1.0), ("hidden", 0), ("norm", norms_of(vector)[0]),
    )  # fmt: skip
    for name, value in guesses:
        if _leaf(mine | {name: value}) == leaf:
            return [name]
    copy = copies(int(rows.ids[row])) if copies is not None else None
    if copy is None:
        return []
    theirs = {
        "chunk": copy.chunk.encode(), "source_channel": copy.source_channel.encode(), "tags": copy.tags.encode(),
        "session_id": copy.session_id.encode(), "key": copy.key.encode(), "source_id": copy.source_id.encode(),
        "timestamp": copy.timestamp, "activation": copy.activation,
    }  # fmt: skip
    different = [name for name, value in theirs.items() if mine[name] != value]
    if _leaf(mine | theirs) == leaf:
        return different
    return ["embedding"] if not different else []


def _values(records: Records, rows: Rows, row: int) -> dict[str, Any]:
    """The fields of a row by report name."""
    texts = records.texts(row, row + 1, {})
    return dict(
        zip(_FIELDS, [*(column[row] for column in rows.numbers), *(bytes(text[0]) for text in texts)], strict=True)
    )


def _leaf(values: Mapping[str, Any]) -> bytes:
    """The leaf hash of a record."""
    numbers: list[NDArray[Any]] = [np.array([values[name]], kind) for _, kind, name in NUMBERS]
    return hash_rows(encode_rows(RECORD, numbers, [[values[name]] for _, _, name in TEXTS]))[0]


# ---------------------------------------------------------------- everything else


def _settings(found: Check, signed: Manifest, holds: Manifest, findings: Findings) -> None:
    for name in sorted(signed.settings.keys() | holds.settings.keys()):
        before, after = signed.settings.get(name), holds.settings.get(name)
        if before != after:
            change = {
                "name": name,
                "signed": None if before is None else digests.setting_value(before),
                "found": None if after is None else digests.setting_value(after),
            }
            found.changed_settings.append(change)
            findings.add("settings-changed", f"setting {name} is not as signed", setting=name)


def _everything_else(signed: Manifest, holds: Manifest, findings: Findings) -> None:
    for name in sorted(signed.tables.keys() | holds.tables.keys()):
        before, after = signed.tables.get(name), holds.tables.get(name)
        if before != after:
            then, now = (table["rows"] if table else 0 for table in (before, after))
            message = f"{name} are not as signed: {then} rows signed, {now} found"
            findings.add(_TABLE_CODES.get(name, "graph-changed"), message, table=name, signed=then, found=now)
    for path in sorted(signed.columns.keys() | holds.columns.keys()):
        if signed.columns.get(path) != holds.columns.get(path):
            how = (
                "is missing" if path not in holds.columns else "was added" if path not in signed.columns else "changed"
            )
            code = _COLUMN_CODES.get(path.split("/")[1], "data-changed")
            findings.add(code, f"{path} {how}", dataset=path)
