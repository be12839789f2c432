"""What a store remembers of its migrations: the group /migration of its HDF5 file (docs/migrate.md § Remembered).

For every source id ever taken in: whether the source called it deleted at the last run, and whether the agent deleted
it. Without this, a record that is gone after `compact` could not be told from one that never was there, nor the agent's
deletion from the source's. A checkpoint keeps the group because it keeps everything it does not know.

Invariants: `ids` are unique and never forgotten; lengths are checked before bytes are sliced.
"""

from __future__ import annotations

from array import array
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from clawmem_core.errors import DamagedError
from clawmem_core.storage import hdf5_file

GROUP = "migration"
SOURCE_DELETED, AGENT_DELETED = 1, 2
_VERSION = 1


class MigrationState:
    """Source ids with their flags (`SOURCE_DELETED`, `AGENT_DELETED`), and entity ids of source and store in pairs."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._lengths = array("I")
        self.flags = bytearray()
        self.entities: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.flags)

    def add(self, source_ids: list[str], flags: bytes) -> None:
        """Remember ids that are not remembered yet."""
        encoded = [one.encode() for one in source_ids]
        self._text += b"".join(encoded)
        self._lengths.extend(map(len, encoded))
        self.flags += flags

    def places(self) -> dict[str, int]:
        """Place in `flags` by source id."""
        found, at = {}, 0
        text = bytes(self._text)
        for place, length in enumerate(self._lengths):
            found[text[at : at + length].decode()] = place
            at += length
        return found

    def write(self, file: h5py.File) -> None:
        """Put the group into a file, in place of an older one."""
        if GROUP in file:
            del file[GROUP]
        group = file.create_group(GROUP)
        group.attrs["version"] = _VERSION
        columns: dict[str, npt.NDArray[Any]] = {
            "source_id_bytes": np.frombuffer(self._text, np.uint8),
            "source_id_lengths": np.frombuffer(self._lengths, np.uint32),
            "flags": np.frombuffer(self.flags, np.uint8),
            "entity_source_ids": np.array(list(self.entities), np.int64),
            "entity_ids": np.array(list(self.entities.values()), np.int64),
        }
        for name, values in columns.items():
            filters = {"compression": "gzip", "compression_opts": 1, "shuffle": True} if len(values) > 1024 else {}
            group.create_dataset(name, data=values, **filters)

    @classmethod
    def read(cls, file: h5py.File, path: str) -> MigrationState | None:
        """The group of a file, None where there is none. Raises DamagedError."""
        with hdf5_file.reading(path, f"/{GROUP}"):
            if GROUP not in file:
                return None
            group = file[GROUP]
            names = ("source_id_bytes", "source_id_lengths", "flags", "entity_source_ids", "entity_ids")
            text, lengths, flags, theirs, ours = (group[name][...] for name in names)
        sizes = (text.dtype == np.uint8, lengths.dtype == np.uint32, flags.dtype == np.uint8)
        if not all(sizes) or int(lengths.sum(dtype=np.uint64)) != len(text) or len(lengths) != len(flags):
            raise DamagedError(path=path, detail=f"/{GROUP}: its columns do not fit together")
        if len(theirs) != len(ours):
            raise DamagedError(path=path, detail=f"/{GROUP}: entity ids do not pair")
        state = cls()
        state._text += text.tobytes()
        state._lengths.frombytes(lengths.tobytes())
        state.flags += flags.tobytes()
        state.entities = dict(zip(theirs.tolist(), ours.tolist(), strict=True))
        return state
