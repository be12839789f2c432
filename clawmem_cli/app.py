"""The typer application, generated from options.py: help, shell completion, and parsing of what the fast path left.

Invariant: typer only splits the command line into raw texts; conversion, checks and execution are the fast path's own.
"""

from __future__ import annotations

import inspect
import io
import os
import sys
from typing import TYPE_CHECKING, Any

import typer

from clawmem_cli import options, output
from clawmem_cli.parsing import Argument, Option, Verb
from clawmem_core import __version__
from clawmem_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_GROUPS = {
    "scope": "Make and derive scope files.",
    "review": "Decide on what was held back.",
    "outbox": "Captured turns that wait for the store.",
    "audit": "Read and check the audit log.",
}
_EPILOG = (
    "Data goes to stdout as JSON, everything else to stderr. Exit codes: 0 ok, 1 internal, 2 usage or invalid input, "
    "3 partial, 4 not found, 10 no store, 11 locked, 12 key or signature input, 13 damage found, 14 version or "
    "dimension mismatch, 15 exists or conflict, 16 held back, 74 I/O, 130 interrupted, 141 broken pipe."
)

_Parsed = tuple[Verb, dict[str, Any]]
_TyperUsageError: type[Exception] = typer.BadParameter.__bases__[0]  # a public base of a public class, not exported


def parse(words: Sequence[str]) -> _Parsed | None:
    """The verb and raw values of a command line, or None where typer (help, version, completion) has answered it.

    Raises UsageError.
    """
    printed = io.StringIO()
    stdout, sys.stdout = sys.stdout, printed
    try:
        answer = build()(list(words), prog_name="clawmem", standalone_mode=False)
    except _TyperUsageError as problem:
        raise _usage_error(problem) from None
    except SystemExit as done:  # completion ends this way
        if done.code not in (0, None):
            raise UsageError(detail=f"shell completion failed ({done.code})") from None
        answer = None
    finally:
        sys.stdout = stdout
    if printed.getvalue():
        output.write(printed.getvalue().encode("utf-8", "backslashreplace"))
    if not isinstance(answer, tuple):
        return None
    verb, given = answer
    if given.pop("version", False):
        output.write(f"clawmem {__version__}\n".encode())
        return None
    if verb is None:
        raise UsageError(detail="no verb given", hint="see `clawmem --help`")
    return verb, given


def build() -> typer.Typer:
    """The whole application; a command returns its verb and the raw values that were given."""
    app = typer.Typer(
        name="clawmem", help="Local agent-memory stores on the command line.", epilog=_EPILOG,
        rich_markup_mode=None, pretty_exceptions_enable=False, context_settings={"help_option_names": ["--help", "-h"]},
    )  # fmt: skip
    _add_callback(app)
    groups: dict[str, typer.Typer] = {}
    for verb in options.VERBS.values():
        first, _, second = verb.words.partition(" ")
        target = app
        if second:
            if first not in groups:
                groups[first] = typer.Typer(help=_GROUPS[first], rich_markup_mode=None)
                app.add_typer(groups[first], name=first)
            target = groups[first]
        target.command(second or first, help=verb.help, short_help=verb.help)(_command(verb))
    return app


def _add_callback(app: typer.Typer) -> None:
    """The options that stand before the verb."""
    parameters = [_context(), *map(_option, options.GLOBAL), _version()]

    def callback(ctx: typer.Context, **values: Any) -> Any:
        ctx.obj = _given(values)
        return None, ctx.obj

    app.callback(invoke_without_command=True)(_with_signature(callback, parameters))


def _command(verb: Verb) -> Callable[..., _Parsed]:
    """The function that typer runs for a verb: what was given before the verb, then what was given after it."""
    parameters = [_context(), *map(_argument, verb.arguments)]
    parameters += [*map(_option, verb.options), *map(_option, options.GLOBAL), _version()]

    def command(ctx: typer.Context, **values: Any) -> _Parsed:
        return verb, {**(ctx.obj or {}), **_given(values)}

    return _with_signature(command, parameters)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != []}


def _with_signature(function: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> Callable[..., Any]:
    function.__dict__["__signature__"] = inspect.Signature(list(parameters))
    function.__annotations__ = {}
    return function


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _context() -> inspect.Parameter:
    return _parameter("ctx", typer.Context)


def _version() -> inspect.Parameter:
    return _parameter("version", bool | None, typer.Option(None, "--version", help="Print the version."))


def _option(option: Option) -> inspect.Parameter:
    """An option as typer sees it: raw text, absent unless given."""
    notes = [f"env {', '.join(option.env)}"] if option.env else []
    if option.kind != "flag" and option.default not in (None, ()):
        notes.append(f"default {option.default:g}" if option.kind == "float" else f"default {option.default}")
    text = option.help + (f" [{'; '.join(notes)}]" if notes else "")
    if option.kind == "flag":
        names = f"{option.flags[0]}/{option.negative}" if option.negative else option.flags[0]
        return _parameter(option.name, bool | None, typer.Option(None, names, *option.flags[1:], help=text))
    kind = list[str] if option.multiple else str | None
    return _parameter(
        option.name, kind, typer.Option(None, *option.flags, help=text, metavar=option.metavar, show_default=False)
    )


def _argument(argument: Argument) -> inspect.Parameter:
    kind = list[str] if argument.multiple else str
    info = typer.Argument(..., help=argument.help, metavar=argument.metavar + ("..." if argument.multiple else ""))
    return _parameter(argument.name, kind, info)


def _usage_error(problem: Any) -> UsageError:
    """Typer's complaint as ours, its text shown as the UTF-8 it was typed in."""
    text: str = problem.format_message()
    shown = text if text.isascii() else os.fsencode(text).decode("utf-8", "backslashreplace")
    ctx = getattr(problem, "ctx", None)
    hint = f"see `{ctx.command_path} --help`" if ctx is not None else "see `clawmem --help`"
    return UsageError(detail=shown.rstrip("."), hint=hint)
