"""The vectors of tests/vectors, and the checker that a CI job runs on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawmem_core.contract import fixtures
from clawmem_core.errors import InvalidInputError, NotFoundError

ROOT = Path(__file__).parents[3]
VECTORS = ROOT / "tests" / "vectors"
PUBLISHED = "67103226fb448be7129cf2cf27a2e2f779fef17bece5c516722ed3b910e96945"


def _lines(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (VECTORS / name).read_text("ascii").splitlines()]


def _conformance() -> list[dict[str, object]]:
    lines = _lines("contract.jsonl") + _lines("conformance-extra.jsonl")
    return [line for line in lines if line.get("typed", True)]


@pytest.mark.parametrize("vector", _conformance(), ids=lambda vector: str(vector["id"]))
def test_conformance(vector: dict[str, object]) -> None:
    """Every in-contract vector gives exactly what the TypeScript gave."""
    expected = fixtures.revive(vector["expected"])
    computed = fixtures.recompute(str(vector["fn"]), fixtures.revive(vector["input"]), expected)
    assert fixtures.agrees(expected, computed), (expected, computed)


def test_published_fixture_is_among_the_vectors() -> None:
    """The one id published upstream is checked."""
    assert [PUBLISHED] == [line["expected"] for line in _lines("contract.jsonl") if line["id"] == "ep-001"]


def test_folder_report() -> None:
    """The checker reads every line of every file."""
    report = fixtures.check_folder(str(VECTORS))
    total = sum(len(_lines(path.name)) for path in VECTORS.glob("*.jsonl"))
    assert ([], total) == (report.drifted, report.checked + report.skipped)
    assert len(_conformance()) == report.checked


def _vector(**changes: object) -> str:
    return json.dumps({"id": "t-1", "fn": "sha256", "input": "", "expected": "0" * 64, **changes})


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.jsonl", _vector(), "t-1 sha256: expected"),
        ("a.jsonl", _vector(fn="sha512"), "'sha512' is no function"),
        ("a.jsonl", "{}", "not a vector"),
        ("a.jsonl", "[", "not a vector"),
        ("a.jsonl", _vector(expected={"$throws": "TypeError"}), "expected"),
        (
            "a.jsonl",
            _vector(fn="assertMemoryScope", input={}, expected={"$throws": "Error", "message": "other"}),
            "agentId is required",
        ),
        ("a.json", '{"eventType": "episode"}', "not a fixture"),
        ("a.json", '{"eventType": "other", "eventId": "x"}', "not a fixture"),
        ("a.json", "[]", "not a fixture"),
        ("a.json", '{"eventType": "episode", "eventId": "00"}', "expected eventId '00'"),
        ("a.json", '{"input": {}, "expectedFactId": "00"}', "expected factId '00'"),
    ],
)
def test_drift_is_named(tmp_path: Path, name: str, text: str, found: str) -> None:
    """A drifted, unknown or unreadable fixture is reported with its place."""
    (tmp_path / name).write_text(text)
    (line,) = fixtures.check_folder(str(tmp_path)).drifted
    assert str(tmp_path / name) in line
    assert found in line


def test_documents_that_hold(tmp_path: Path) -> None:
    """A published fixture and an event file pass, also below the folder."""
    source = next(line["input"] for line in _lines("contract.jsonl") if line["id"] == "ep-001")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "fixture.json").write_text(json.dumps({"input": source, "expectedEventId": PUBLISHED}))
    event = {**dict(source), "eventType": "episode", "schemaVersion": 1, "eventId": PUBLISHED}
    (tmp_path / "event.json").write_text(json.dumps(event))
    report = fixtures.check_folder(str(tmp_path))
    assert ([], 2) == (report.drifted, report.checked)


def test_a_folder_without_fixtures_fails(tmp_path: Path) -> None:
    """Checking nothing is no success."""
    with pytest.raises(NotFoundError):
        fixtures.check_folder(str(tmp_path))


def test_unknown_function_is_refused() -> None:
    """A function outside the contract cannot be recomputed."""
    with pytest.raises(InvalidInputError):
        fixtures.recompute("md5", "", "")


@pytest.mark.parametrize(("drift", "code"), [(False, 0), (True, 13)])
def test_script(tmp_path: Path, drift: bool, code: int) -> None:
    """The one-liner of a CI job: 0 when all agree, 13 with the place on stderr when one does not."""
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    (tmp_path / "v.jsonl").write_text(_vector(expected="0" * 64 if drift else empty))
    run = subprocess.run(
        [str(ROOT / "scripts" / "check_fixtures.sh"), str(tmp_path)],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert code == run.returncode
    assert {"checked": 1, "drifted": int(drift), "skipped": 0} == json.loads(run.stdout)
    assert drift == ("v.jsonl:1: t-1" in run.stderr)


def test_usage() -> None:
    """Without a folder it says how to call it."""
    assert fixtures.main([]) == 2
    assert fixtures.main(["/nonexistent/folder"]) == 4
