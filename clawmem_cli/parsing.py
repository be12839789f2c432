"""Command lines: what an option is, the parser for well-formed ones, and the conversion of values.

Invariants: a command line is split into raw texts either here (`recognise`) or by typer (app.py), with the same result;
`recognise` gives up (None) on whatever it is not sure of. Values are converted in one place, `finish`, for both.
Paths keep the bytes they came with; all other text must be UTF-8, whatever the locale says. HOT.
"""

from __future__ import annotations

import os

from clawmem_core.errors import InvalidInputError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Final

INFINITY: Final = float("inf")


class Option:
    """One option. `flags`: its spellings, the long one first. `kind`: flag, text, path, int, float or choice.

    `negative`: the spelling that sets a flag to False. `least`: smallest number allowed. `env`: environment variables
    that stand in for it, first one set wins.
    """

    __slots__ = (
        "choices", "default", "env", "flags", "help", "kind", "least", "metavar", "multiple", "name", "negative",
    )  # fmt: skip

    def __init__(
        self,
        flags: str,
        kind: str,
        help: str,
        *,
        default: Any = None,
        metavar: str = "",
        negative: str = "",
        least: float = -INFINITY,
        multiple: bool = False,
        env: tuple[str, ...] = (),
        choices: tuple[str, ...] = (),
    ) -> None:
        self.flags = tuple(flags.split())
        self.kind, self.help, self.least = kind, help, least
        self.multiple, self.env, self.choices, self.negative = multiple, env, choices, negative
        self.name = self.flags[0][2:].replace("-", "_")
        if self.name == "async":  # a keyword of Python
            self.name = "async_"
        self.default = False if kind == "flag" and default is None else () if multiple else default
        self.metavar = metavar or ("|".join(choices) if choices else kind.upper())


class Argument:
    """One positional argument, of kind text, path or int; `multiple` takes one or more."""

    __slots__ = ("help", "kind", "least", "metavar", "multiple", "name")

    def __init__(self, metavar: str, kind: str, help: str, *, least: float = -INFINITY, multiple: bool = False) -> None:
        self.metavar, self.kind, self.help, self.least = metavar, kind, help, least
        self.multiple = multiple
        self.name = metavar.lower().replace("-", "_")


class Verb:
    """One subcommand: its words ("audit show"), help, options and arguments.

    `store`: needs --path. `fast`: its module obeys the hot path rule, so it runs without typer.
    """

    __slots__ = ("arguments", "fast", "help", "options", "store", "words")

    def __init__(
        self,
        words: str,
        help: str,
        options: tuple[Option, ...] = (),
        arguments: tuple[Argument, ...] = (),
        *,
        store: bool = True,
        fast: bool = False,
    ) -> None:
        self.words, self.help, self.options, self.arguments = words, help, options, arguments
        self.store, self.fast = store, fast


class Arguments:
    """The converted values of one command line: an attribute per global option, option and argument of the verb."""

    path: str
    lock_timeout: float
    quiet: bool

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def recognise(
    words: Sequence[str], verbs: Mapping[str, Verb], common: tuple[Option, ...]
) -> tuple[Verb, dict[str, Any]] | None:
    """The verb and its raw values if this is a well-formed command line of a fast verb, else None."""
    verb: Verb | None = None
    known = _by_flag(common)
    given: dict[str, Any] = {}
    places: list[str] = []
    position, end = 0, len(words)
    while position < end:
        word = words[position]
        position += 1
        if word[:1] != "-" or word == "-":
            if verb is not None:
                places.append(word)
                continue
            verb = verbs.get(word)
            if verb is None or not verb.fast:
                return None
            known = _by_flag(common + verb.options)
            continue
        flag, equals, value = word.partition("=")
        option = known.get(flag)
        if option is None or (equals and (flag[:2] != "--" or option.kind == "flag")):
            return None
        if option.kind == "flag":
            given[option.name] = flag != option.negative
            continue
        if not equals:
            if position == end:
                return None
            value = words[position]
            position += 1
        if option.multiple:
            given.setdefault(option.name, []).append(value)
        else:
            given[option.name] = value
    if verb is None or len(places) != len(verb.arguments):
        return None
    for argument, value in zip(verb.arguments, places, strict=True):
        if argument.multiple:
            return None
        given[argument.name] = value
    return verb, given


def _by_flag(options: Iterable[Option]) -> dict[str, Option]:
    found = {}
    for option in options:
        for flag in option.flags:
            found[flag] = option
        if option.negative:
            found[option.negative] = option
    return found


def finish(verb: Verb, given: Mapping[str, Any], common: tuple[Option, ...]) -> Arguments:
    """Raw values (text, True/False or lists of text, by name) with environment and defaults, converted.

    Raises UsageError (no store named, no number, not one of the choices) and InvalidInputError (not UTF-8).
    """
    args = Arguments()
    for option in common + verb.options:
        raw = given.get(option.name)
        value: Any
        if raw is None or raw == []:
            raw = next((os.environ[name] for name in option.env if os.environ.get(name)), None)
            value = option.default if raw is None else _convert(option.flags[0], option, raw)
        elif option.multiple:
            value = tuple([_convert(option.flags[0], option, text) for text in raw])
        else:
            value = _convert(option.flags[0], option, raw)
        setattr(args, option.name, value)
    for argument in verb.arguments:
        raw = given.get(argument.name)
        if argument.multiple:
            value = tuple([_convert(argument.metavar, argument, text) for text in raw or ()])
        else:
            value = None if raw is None else _convert(argument.metavar, argument, raw)
        setattr(args, argument.name, value)
    if verb.store and not args.path:
        raise UsageError(detail="no store given", hint="give --path FILE or set CLAWMEM_PATH")
    return args


def _convert(name: str, option: Option | Argument, raw: Any) -> Any:
    """One raw value as the kind of its option says."""
    kind = option.kind
    if kind in ("flag", "path"):
        return raw
    text = utf8_text(name, raw)
    if kind == "text":
        return text
    if isinstance(option, Option) and option.choices:
        if text not in option.choices:
            raise UsageError(detail=f"{name} is {text!r}; it can be {', '.join(option.choices)}")
        return text
    try:
        if not text.isascii() or "_" in text or text != text.strip():
            raise ValueError
        number = int(text) if kind == "int" else float(text)
    except ValueError:
        raise UsageError(detail=f"{name} must be a {'whole ' if kind == 'int' else ''}number, not {text!r}") from None
    if not -INFINITY < number < INFINITY:
        raise UsageError(detail=f"{name} must be a finite number, not {text}")
    if number < option.least:
        raise UsageError(detail=f"{name} must be at least {option.least:g}")
    return number


def utf8_text(name: str, raw: str) -> str:
    """A command-line text as the UTF-8 its bytes are, also where the locale is ASCII. Raises InvalidInputError."""
    if raw.isascii():
        return raw
    try:
        return os.fsencode(raw).decode()
    except UnicodeError:
        raise InvalidInputError(field=name, detail="is not valid UTF-8") from None


def display_path(path: str | bytes) -> str:
    """A path as text that JSON can carry; bytes that are not UTF-8 show as \\xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
