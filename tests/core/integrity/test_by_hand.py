"""The program of docs/verify-by-hand.md, and its verdict against that of `verify` on tampered stores."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from clawmem_core.integrity.keys import SecretKey
from clawmem_core.integrity.signing import Signing
from clawmem_core.integrity.verify import verify
from clawmem_core.storage.paths import StorePaths
from tests.core.integrity.samples import columns, write_store
from tests.core.integrity.tampering import COLUMNS, EDITS, Edit

PAGE = Path(__file__).parents[3] / "docs" / "verify-by-hand.md"
ByHand = Callable[[str, str], None]


@pytest.fixture(scope="module")
def by_hand() -> ByHand:
    """The `verify` of the page."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    assert 60 >= sum(1 for line in code[1].split("\n") if line.strip())
    space: dict[str, Any] = {"__name__": "verify_by_hand"}
    exec(compile(code[1], str(PAGE), "exec"), space)  # noqa: S102
    found: ByHand = space["verify"]
    return found


def holds(by_hand: ByHand, path: str, key: SecretKey) -> bool:
    """The verdict by hand: whatever goes wrong is a no."""
    try:
        by_hand(path, key.public.hex)
    except Exception:
        return False
    return True


def test_clean(by_hand: ByHand, store: str, key: SecretKey, tmp_path: Path) -> None:
    """A signed store holds, also an empty one, a float32 one and one with a history."""
    by_hand(store, key.public.hex)
    path = str(tmp_path / "x.h5")
    for count, float16 in ((0, True), (3, False), (200, True)):
        write_store(path, columns(count, float16=float16), Signing(key))
        by_hand(path, key.public.hex)
    signing = Signing(key)
    with h5py.File(store, locking=False) as file:
        signing.before(file, store)
    write_store(path, columns(), signing)
    by_hand(path, key.public.hex)


def test_runs_without_end_take_no_memory(by_hand: ByHand, store: str, key: SecretKey) -> None:
    """The number of ids is bounded by the leaves before any is made."""
    with h5py.File(store, "r+", locking=False) as file:
        EDITS["id runs without end"][0](file)
    with pytest.raises(AssertionError):
        by_hand(store, key.public.hex)


def random_edit(dice: random.Random) -> Edit:
    """A change that may or may not mean something."""

    def edit(file: h5py.File) -> None:
        group = dice.choice(["memory", "memory", "sessions", "knowledge_graph", "events", "audit", "integrity", "meta"])
        if group == "meta" and dice.random() < 0.7:
            name = dice.choice(sorted(file["meta"].attrs))
            file["meta"].attrs[name] = dice.choice([np.int64(3), 0.5, "text", file["meta"].attrs[name]])
            return
        dataset = file[group][dice.choice(sorted(file[group]))]
        values = dataset[...]
        if not values.size:
            return
        at = tuple(dice.randrange(size) for size in values.shape)
        if values.dtype.kind in "SO":
            values[at] = dice.choice([b"x", b"", bytes(values[at])])
        else:
            values[at] = dice.choice([values[at], values[at] + 1, 0])
        dataset[...] = values

    return edit


def tamper(path: str, number: int, dice: random.Random) -> None:
    """Change the file: an edit of the matrix, a random edit, or one or a few flipped bits."""
    kind = number % 4
    if kind == 3:
        data = bytearray(Path(path).read_bytes())
        for _ in range(dice.choice([1, 1, 3])):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        Path(path).write_bytes(data)
        return
    with h5py.File(path, "r+", locking=False) as file:
        if kind == 0:
            EDITS[dice.choice([name for name in EDITS if "link" not in name])][0](file)
        elif kind == 1:
            random_edit(dice)(file)
        else:
            first, second = dice.sample(range(20), 2)
            for name in dice.sample(COLUMNS[:6], dice.randrange(1, 6)):  # exchange some fields of two records
                values = file["memory"][name][...]
                values[[first, second]] = values[[second, first]]
                file["memory"][name][...] = values


def test_agrees_with_verify_on_tampered_stores(by_hand: ByHand, store: str, key: SecretKey, tmp_path: Path) -> None:
    """Two hundred stores, one verdict each."""
    path = str(tmp_path / "t.h5")
    verdicts = []
    for number in range(200):
        shutil.copy(store, path)
        tamper(path, number, random.Random(number))
        report = verify(StorePaths(path), key.public)
        assert holds(by_hand, path, key) == report["valid"], (number, report["findings"])
        verdicts.append(report["valid"])
    assert 120 < verdicts.count(False) < 200
