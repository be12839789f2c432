"""Redaction: secrets, paths and command output leave a text before it is bounded, hashed or stored.

Invariants: `redact` is idempotent; what it puts in place of a secret is `[redacted:CLASS]` and nothing else, never a
part or a digest of it; counts name classes only. Time is linear in the text (redaction_patterns.py). A text that keeps
yielding secrets after MAX_ROUNDS is replaced whole.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from clawmem_core.contract.redaction_patterns import PATTERNS, REDACTION_VERSION, Pattern
from clawmem_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["REDACTION_VERSION", "Finding", "Redactor", "find_secrets", "load_rules", "redact", "redaction_classes"]

MAX_ROUNDS: Final = 16
MIN_ENTROPY: Final = 4.0  # bits per character
_ENTROPY_CLASS: Final = "entropy"
_RUN = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
_DIGEST = re.compile(r"(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{64})\Z")
_PLACEHOLDER = re.compile(r"\[redacted:[a-z0-9-]{1,32}\]")
_PLACEHOLDERS_ONLY = re.compile(r"(?:\[redacted:[a-z0-9-]{1,32}\]\s*)+\Z")
_CLASS_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")
_MAX_RULES: Final = 200
_MAX_EXPRESSION: Final = 1_000


class Finding(NamedTuple):
    """Where in a text a secret stands (code points, end exclusive), and of which class it is."""

    start: int
    end: int
    redaction_class: str


class Redactor:
    """A set of patterns and of allowed texts. `redact` and `find_secrets` use the built-in set."""

    def __init__(self, patterns: Iterable[Pattern] = PATTERNS, allowed: Iterable[str] = ()) -> None:
        self._patterns = tuple(patterns)
        self._compiled = [(pattern, re.compile(pattern.expression, re.ASCII)) for pattern in self._patterns]
        self._allowed = frozenset(allowed)

    def classes(self) -> list[dict[str, str]]:
        """Every pattern as a row: class, name, description."""
        rows = [
            {"class": pattern.redaction_class, "name": pattern.name, "description": pattern.description}
            for pattern in self._patterns
        ]
        described = f"32 or more mixed characters with {MIN_ENTROPY:g} bits each; digests in hex are exempt"
        return [*rows, {"class": _ENTROPY_CLASS, "name": _ENTROPY_CLASS, "description": described}]

    def find(self, text: str) -> list[Finding]:
        """The secrets of a text, in order, merged where they overlap; placeholders are none."""
        held = [match.span() for match in _PLACEHOLDER.finditer(text)]
        found = [
            Finding(_edge(held, finding.start, 0), _edge(held, finding.end, 1), finding.redaction_class)
            for finding in self._raw(text)
        ]
        found = [finding for finding in found if self._counts(text[finding.start : finding.end])]
        found.sort(key=lambda finding: (finding.start, -finding.end))
        merged: list[Finding] = []
        for finding in found:
            if merged and finding.start < merged[-1].end:
                if finding.end > merged[-1].end:
                    merged[-1] = merged[-1]._replace(end=finding.end)
            else:
                merged.append(finding)
        return merged

    def redact(self, text: str) -> tuple[str, dict[str, int]]:
        """The text with every secret replaced by its placeholder, and how many of each class there were."""
        counts: Counter[str] = Counter()
        for _ in range(MAX_ROUNDS):  # taking one secret out can lay another one bare
            found = self.find(text)
            if not found:
                return text, dict(counts)
            counts.update(finding.redaction_class for finding in found)
            text = _replaced(text, found)
        last = self.find(text)
        if not last:
            return text, dict(counts)
        counts[last[0].redaction_class] += 1
        return _placeholder(last[0].redaction_class), dict(counts)

    def _raw(self, text: str) -> Iterable[Finding]:
        for pattern, compiled in self._compiled:
            for match in compiled.finditer(text):
                start, end = match.span(match.lastindex or 0)
                if end > start:
                    yield Finding(start, end, pattern.redaction_class)
        for match in _RUN.finditer(text):
            if _looks_random(match.group()):
                yield Finding(*match.span(), _ENTROPY_CLASS)

    def _counts(self, secret: str) -> bool:
        return secret not in self._allowed and not _PLACEHOLDERS_ONLY.match(secret)


def load_rules(document: str) -> Redactor:
    """The built-in patterns plus those of a TOML document.

        [[pattern]]
        class = "acme"
        description = "ticket of the Acme service"
        expression = "acme_[0-9]{8}"

        [allow]
        texts = ["AKIAIOSFODNN7EXAMPLE"]

    Group 1 of an expression, if there is one, is the secret. An allowed text is kept where a pattern finds exactly it.
    Raises InvalidInputError for anything else in the document, for an expression that does not compile and for one that
    matches the empty text.
    """
    import tomllib

    try:
        rules = tomllib.loads(document)
    except tomllib.TOMLDecodeError as error:
        raise _bad_rules(f"not TOML: {error}") from None
    if rules.keys() - {"pattern", "allow"}:
        raise _bad_rules(f"unknown key {min(rules.keys() - {'pattern', 'allow'})}")
    rows, allow = rules.get("pattern", []), rules.get("allow", {})
    if not isinstance(rows, list) or len(rows) > _MAX_RULES:
        raise _bad_rules(f"pattern must be a list of at most {_MAX_RULES} tables")
    extra = [_extra_pattern(number, row) for number, row in enumerate(rows, start=1)]
    texts = allow.get("texts", []) if isinstance(allow, dict) and allow.keys() <= {"texts"} else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _bad_rules("allow must hold one list of texts")
    return Redactor((*PATTERNS, *extra), texts)


def _extra_pattern(number: int, row: object) -> Pattern:
    if not isinstance(row, dict) or row.keys() != {"class", "description", "expression"}:
        raise _bad_rules(f"pattern {number} must have class, description and expression")
    if not all(isinstance(value, str) for value in row.values()):
        raise _bad_rules(f"pattern {number} must hold texts")
    if not _CLASS_NAME.match(row["class"]):
        raise _bad_rules(f"pattern {number}: a class is a word of lower-case letters, digits and -")
    if len(row["expression"]) > _MAX_EXPRESSION:
        raise _bad_rules(f"pattern {number} is longer than {_MAX_EXPRESSION} characters")
    try:
        empty = re.compile(row["expression"], re.ASCII).match("")
    except re.error as error:
        raise _bad_rules(f"pattern {number}: {error}") from None
    if empty:
        raise _bad_rules(f"pattern {number} matches the empty text")
    return Pattern(f"extra-{number}", row["class"], row["description"], row["expression"])


def _bad_rules(detail: str) -> InvalidInputError:
    return InvalidInputError(field="redaction rules", detail=detail)


def _edge(held: list[tuple[int, int]], place: int, side: int) -> int:
    """The place, or that side of the placeholder it falls inside of, so that no finding cuts a placeholder in two."""
    before = bisect_left(held, (place, 0)) - 1
    return held[before][side] if before >= 0 and place < held[before][1] else place


def _looks_random(run: str) -> bool:
    """True for a run with small and capital letters and digits, and enough entropy, that is no hex digest."""
    if _DIGEST.match(run):
        return False
    kinds = {"a" if char.islower() else "A" if char.isupper() else "0" if char.isdigit() else "" for char in run}
    if not {"a", "A", "0"} <= kinds:
        return False
    total = len(run)
    return -sum(n / total * math.log2(n / total) for n in Counter(run).values()) >= MIN_ENTROPY


def _replaced(text: str, found: list[Finding]) -> str:
    parts: list[str] = []
    at = 0
    for finding in found:
        parts += (text[at : finding.start], _placeholder(finding.redaction_class))
        at = finding.end
    return "".join((*parts, text[at:]))


def _placeholder(redaction_class: str) -> str:
    return f"[redacted:{redaction_class}]"


_BUILT_IN = Redactor()


def redact(text: str) -> tuple[str, dict[str, int]]:
    """`Redactor.redact` with the built-in patterns."""
    return _BUILT_IN.redact(text)


def find_secrets(text: str) -> list[Finding]:
    """`Redactor.find` with the built-in patterns."""
    return _BUILT_IN.find(text)


def redaction_classes() -> list[dict[str, str]]:
    """Every built-in pattern as a row: class, name, description."""
    return _BUILT_IN.classes()
