"""Recomputes the contract fixtures of a folder and reports every one that has drifted.

Invariant: nothing passes unread. A file that is no fixture, a function nobody knows and a folder without fixtures are
failures, not silence.

Two forms are read. `*.jsonl`: one vector a line, `{"id","fn","input","expected"}`, values JSON cannot carry written as
`{"$js":"undefined"}` and so on. `*.json`: a published fixture, `{"input": …, "expectedEventId": …}` (or
`expectedFactId`), or a whole event that carries its id. Lines marked `"typed": false` (inputs outside the contract) and
lines of functions that document an ancestor are counted as skipped.

    python -m clawmem_core.contract.fixtures DIR
"""

from __future__ import annotations

import sys

from clawmem_core.contract import canonical, identities, render, scope, validate
from clawmem_core.errors import ClawmemError, IntegrityError, InvalidInputError, NotFoundError
from clawmem_core.storage import fs
from clawmem_core.strict_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final

ANCESTOR_FUNCTIONS: Final = frozenset(("recall", "ocLatestPair", "ocScope", "ocConfig"))
_MARKERS: Final[dict[str, Any]] = {
    "undefined": canonical.UNDEFINED,
    "hole": canonical.UNDEFINED,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "-0": -0.0,
}
THROWS: Final = "$throws"
MAX_FILE: Final = 64 * 1024 * 1024


class Report:
    """What a run found: `checked`, `skipped`, and `drifted`, one line of text for each fixture that failed."""

    __slots__ = ("checked", "drifted", "skipped")

    def __init__(self) -> None:
        self.checked = self.skipped = 0
        self.drifted: list[str] = []


# ---------------------------------------------------------------- values and functions


def revive(value: Any) -> Any:
    """A vector's JSON value with its `$js` markers replaced by the values they stand for."""
    if isinstance(value, dict):
        if value.keys() == {"$js"}:
            return _MARKERS[value["$js"]]
        return {name: revive(member) for name, member in value.items()}
    if isinstance(value, list):
        return [revive(item) for item in value]
    return value


def recompute(function: str, given: Any, expected: Any) -> Any:
    """The value our function gives for a vector's input; `{"$throws": message}` if it raises.

    Raises InvalidInputError for a function that is not part of the contract.
    """
    if function not in _FUNCTIONS:
        raise InvalidInputError(field="fn", detail=f"{function!r} is no function of the contract")
    try:
        return _FUNCTIONS[function](given, expected)
    except (ClawmemError, TypeError) as error:
        return {THROWS: str(error)}


def agrees(expected: Any, computed: Any) -> bool:
    """True if a recomputed value is the expected one; two failures agree unless their messages are fixed and differ."""
    if isinstance(expected, dict) and THROWS in expected:
        thrown = isinstance(computed, dict) and THROWS in computed
        return thrown and expected.get("message") in (None, computed[THROWS])
    return bool(expected == computed)


def _format(given: dict[str, Any], expected: Any) -> str:
    options = given.get("options") or {}
    heading = options.get("heading")
    if heading is None or heading is canonical.UNDEFINED:  # ours differs from the ancestor's, by design
        heading = expected.partition("\n\n")[0] or render.DEFAULT_HEADING
    return render.format_recalled_memories(given["memories"], max_chars=options.get("maxChars"), heading=heading)


def _where(given: dict[str, Any], _: Any) -> dict[str, Any]:
    options = given.get("options", {})
    return scope.build_scope_where(
        given["scope"], exclude_session_id=options.get("excludeSessionId"), active_only=options.get("activeOnly")
    )


def _asserted(given: dict[str, Any], _: Any) -> Any:
    scope.assert_memory_scope(given)
    return canonical.UNDEFINED


def _verdict(given: Any, expected: Any) -> dict[str, bool]:
    """Formats are always asserted here, so only that verdict can differ."""
    try:
        validate.validate_event(given)
    except ClawmemError:
        return {**expected, "validWithFormats": False}
    return {"valid": True, "validWithFormats": True}


_FUNCTIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "stableStringify": lambda given, _: canonical.stable_stringify(given),
    "stableStringifyJson": lambda given, _: canonical.stable_stringify(parse_json(given)),
    "sha256": lambda given, _: canonical.sha256_hex(given),
    "hashScope": lambda given, _: identities.hash_scope(given["parts"], given.get("salt", "")),
    "episodeEventId": lambda given, _: identities.episode_event_id(given),
    "factEventId": lambda given, _: identities.fact_event_id(given),
    "createEpisodeEvent": lambda given, _: identities.create_episode_event(given),
    "createFactEvent": lambda given, _: identities.create_fact_event(given),
    "assertMemoryScope": _asserted,
    "buildScopeWhere": _where,
    "boundedText": lambda given, _: render.bounded_text(given["value"], given.get("maxChars", canonical.UNDEFINED)),
    "formatRecalledMemories": _format,
    "numberToString": lambda given, _: canonical.number_to_string(given),
    "toFixed3": lambda given, _: canonical.to_fixed3(given),
    "schemaValidate": _verdict,
}


# ---------------------------------------------------------------- files


def check_folder(folder: str) -> Report:
    """Recompute every fixture below `folder`, in order of file name.

    Raises NotFoundError when there is none, StorageError when a file cannot be read.
    """
    report = Report()
    for path in _files(folder.rstrip("/") or "/"):
        data = fs.read_all(path, MAX_FILE + 1) or b""
        if len(data) > MAX_FILE:
            report.drifted.append(f"{path}: larger than {MAX_FILE} bytes")
        elif path.endswith(".jsonl"):
            for number, line in enumerate(data.split(b"\n"), start=1):
                if line.strip():
                    _check_vector(report, f"{path}:{number}", line)
        else:
            _check_document(report, path, data)
    if not (report.checked or report.drifted):
        raise NotFoundError(kind="fixture in", id=folder)
    return report


def _check_vector(report: Report, place: str, line: bytes) -> None:
    try:
        vector = parse_json(line, refuse_duplicates=True)
        name, function = vector["id"], vector["fn"]
        if function in ANCESTOR_FUNCTIONS or not vector.get("typed", True):
            report.skipped += 1
            return
        expected = revive(vector["expected"])
        computed = recompute(function, revive(vector["input"]), expected)
    except (ClawmemError, KeyError, TypeError) as error:
        report.drifted.append(f"{place}: not a vector: {error}")
        return
    report.checked += 1
    if not agrees(expected, computed):
        report.drifted.append(f"{place}: {name} {function}: expected {_brief(expected)}, computed {_brief(computed)}")


def _check_document(report: Report, path: str, data: bytes) -> None:
    try:
        document = parse_json(data, refuse_duplicates=True)
        given, member, expected = _published(document)
    except (ClawmemError, KeyError, TypeError, AttributeError):
        report.drifted.append(f"{path}: not a fixture: no event with its id, no input with an expected id")
        return
    compute = identities.episode_event_id if member == "eventId" else identities.fact_event_id
    report.checked += 1
    computed = compute(given)
    if computed != expected:
        report.drifted.append(f"{path}: expected {member} {_brief(expected)}, computed {computed}")


def _published(document: dict[str, Any]) -> tuple[dict[str, Any], str, Any]:
    """The input, the id's member name and the expected id of a published fixture or of an event."""
    for member, name in (("eventId", "expectedEventId"), ("factId", "expectedFactId")):
        if name in document:
            return dict(document["input"]), member, document[name]
    member = {"episode": "eventId", "fact": "factId"}[document["eventType"]]
    return document, member, document[member]


def _brief(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _files(folder: str) -> Iterator[str]:
    if not fs.is_directory(folder):
        return
    for name in fs.listdir(folder):
        path = f"{folder}/{name}"
        if fs.is_directory(path):
            yield from _files(path)
        elif name.endswith((".json", ".jsonl")):
            yield path


def main(arguments: list[str]) -> int:
    """Check one folder: drift and its place on stderr, a count as JSON on stdout. Returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m clawmem_core.contract.fixtures DIR\n")
        return 2
    try:
        report = check_folder(arguments[0])
    except ClawmemError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return error.exit
    for line in report.drifted:
        sys.stderr.write(f"drift: {line}\n")
    counts = {"checked": report.checked, "drifted": len(report.drifted), "skipped": report.skipped}
    sys.stdout.write(f"{canonical.canonical_text(counts)}\n")
    return IntegrityError.exit if report.drifted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
