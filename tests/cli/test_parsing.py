"""The fast parser against typer's, and the conversion of values."""

from __future__ import annotations

import random
from typing import Any

import pytest
import typer
from typer.main import get_command

from clawmem_cli import app, options, parsing
from clawmem_core.errors import ClawmemError, InvalidInputError, UsageError

FAST = [verb for verb in options.VERBS.values() if verb.fast]
COMMAND = get_command(app.build())
VALUES = ["0", "7", "-3", "0.5", "x y", "", "-", "--", "a=b", "--query", "naïve", "[1,2]", "nan", "{}", "-k", "ü\udcff"]


def by_typer(words: list[str]) -> tuple[parsing.Verb, dict[str, Any]] | None:
    """Typer's own reading of a command line; None where it refuses it or answers it itself."""
    try:
        answer = COMMAND.main(args=words, prog_name="clawmem", standalone_mode=False)
    except typer.BadParameter.__bases__[0]:
        return None
    if not isinstance(answer, tuple) or answer[0] is None:
        return None
    return answer


def some_words(rng: random.Random) -> list[str]:
    """A command line that is often well-formed: options of a verb (or of another), values, positions, all shuffled."""
    verb = rng.choice(FAST)
    groups: list[list[str]] = []
    for _ in range(rng.randrange(5)):
        option = rng.choice(options.GLOBAL + rng.choice([verb, verb, verb, rng.choice(FAST)]).options)
        flag = rng.choice([*option.flags, *([option.negative] if option.negative else [])])
        value = rng.choice(VALUES)
        if option.kind == "flag":
            groups.append(rng.choice([[flag], [flag], [flag], [f"{flag}={value}"]]))
        else:
            forms = [[flag, value], [flag, value], [f"{flag}={value}"], [flag], [flag + value]]
            groups.append(rng.choice(forms))
    if verb.arguments or rng.random() < 0.1:
        groups.append([rng.choice(VALUES)])
    rng.shuffle(groups)
    at = rng.choice([0, 0, 0, 1, len(groups)])
    groups.insert(at, [verb.words])
    return [word for group in groups for word in group]


def test_the_fast_parser_reads_as_typer_does_or_hands_over() -> None:
    """Over thousands of command lines, most of which it must take."""
    rng = random.Random(0)
    taken = 0
    for _ in range(6000):
        words = some_words(rng)
        fast = parsing.recognise(words, options.VERBS, options.GLOBAL)
        if fast is not None:
            taken += 1
            assert by_typer(words) == fast, words
    assert taken > 2000


@pytest.mark.parametrize("verb", [verb.words for verb in FAST])
def test_ordinary_command_lines_take_the_fast_path(verb: str) -> None:
    """Global options before and after the verb, --option=value, and the verb's own options."""
    place = ["7"] if options.VERBS[verb].arguments else []
    for words in (
        ["--path", "m.h5", verb, *place],
        [verb, *place, "-p", "m.h5", "--quiet"],
        ["--path=m.h5", "--lock-timeout", "1", verb, *place],
    ):
        found = parsing.recognise(words, options.VERBS, options.GLOBAL)
        assert found is not None
        assert options.VERBS[verb] is found[0]
        assert "m.h5" == found[1]["path"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["search", "--help"],
        ["stats", "--bad"],
        ["export"],
        ["recall"],
        ["recall", "1", "2"],
        ["save", "-k"],
    ],
)
def test_everything_else_is_handed_over(words: list[str]) -> None:
    """Help, errors and verbs without a fast path are not for the fast parser."""
    assert parsing.recognise(words, options.VERBS, options.GLOBAL) is None


def finished(words: list[str]) -> parsing.Arguments:
    """The converted values of a command line, by typer's path."""
    found = app.parse(words)
    assert found is not None
    return parsing.finish(*found, options.GLOBAL)


def test_values_are_converted_and_absent_ones_have_defaults() -> None:
    """Numbers become numbers, repeated options tuples."""
    args = finished(["search", "-p", "m.h5", "-k", "3", "--vector-weight", "0.25", "--source", "a", "--source", "b"])
    assert (3, 0.25, ("a", "b"), (), None, True) == (
        args.top_k, args.vector_weight, args.source, args.tag, args.query, args.context,
    )  # fmt: skip
    assert (10.0, False) == (args.lock_timeout, args.quiet)


@pytest.mark.parametrize(
    "words",
    [
        ["search", "-k", "0"], ["search", "-k", "1_0"], ["search", "-k", "1.5"], ["search", "-k", "٣"],
        ["search", "--vector-weight", "nan"], ["search", "--vector-weight", "-1"],
        ["search", "--keyword-weight", "inf"],
        ["recall", "x"], ["recall", " 1"], ["create", "--dim", "0"], ["create", "--tokenizer", "klingon"],
        ["--lock-timeout", "-1", "stats"], ["delete", "1", "x"],
    ],
)  # fmt: skip
def test_bad_numbers_and_choices_are_usage_errors(words: list[str]) -> None:
    """Exit 2, whichever parser split the words."""
    with pytest.raises(UsageError):
        finished(["-p", "m.h5", *words])


def test_text_must_be_utf8_and_paths_need_not_be() -> None:
    """Bytes that are not UTF-8 arrive as surrogates: refused in a text, kept in a path."""
    with pytest.raises(InvalidInputError):
        finished(["-p", "m.h5", "search", "--query", "a\udcff"])
    assert "m\udcff.h5" == finished(["-p", "m\udcff.h5", "stats"]).path
    assert "m\\xff.h5" == parsing.display_path("m\udcff.h5")


def test_the_environment_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """--path, then CLAWMEM_PATH, then CLAWHDF5_PATH; an empty variable is none; without any it is a usage error."""
    monkeypatch.setenv("CLAWHDF5_PATH", "old.h5")
    monkeypatch.setenv("CLAWMEM_PATH", "")
    assert "old.h5" == finished(["stats"]).path
    monkeypatch.setenv("CLAWMEM_PATH", "new.h5")
    assert "new.h5" == finished(["stats"]).path
    assert "given.h5" == finished(["stats", "--path", "given.h5"]).path
    monkeypatch.delenv("CLAWMEM_PATH")
    monkeypatch.delenv("CLAWHDF5_PATH")
    with pytest.raises(ClawmemError, match="no store given"):
        finished(["stats"])


def test_names_of_options_are_unique_within_a_verb() -> None:
    """No option of a verb hides another or a global one."""
    for verb in options.VERBS.values():
        flags = [flag for option in options.GLOBAL + verb.options for flag in (*option.flags, option.negative) if flag]
        names = [part.name for part in (*options.GLOBAL, *verb.options, *verb.arguments)]
        assert len(set(flags)) == len(flags), verb.words
        assert len(set(names)) == len(names), verb.words


def test_no_verb_stands_twice_in_the_table() -> None:
    """The later of two would hide the other."""
    assert len(options.VERBS) == len(options.ALL_VERBS)
