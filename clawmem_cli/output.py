"""Everything the command prints: JSON on stdout, one line each for errors, warnings and summaries on stderr.

Invariants: stdout carries UTF-8 whatever the locale says, one JSON document (indented on a terminal, one line
otherwise) or one document a line; never NaN or Infinity; bytes go straight to the file descriptor, so nothing is left
to flush at exit and a reader that went away shows at once as BrokenPipeError. stderr never makes a command fail. HOT.
"""

from __future__ import annotations

import os
from _json import encode_basestring, encode_basestring_ascii

from clawmem_core.errors import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

    from clawmem_core.errors import ClawmemError

_STDOUT: Final = 1
_STDERR: Final = 2
quiet = False  # set once from --quiet; silences warnings and summaries, never errors


def json_text(value: Any, indent: str = "", step: str = "") -> str:
    """JSON of dicts, lists, tuples, str, int, float, bool and None; with a `step`, one member a line, indented by it.

    Text stands as it is (UTF-8 once printed); one with a lone surrogate, which UTF-8 cannot carry, is ASCII-escaped.
    Raises ValueError for NaN and Infinity, TypeError for anything else.
    """
    kind = type(value)
    if kind is str:
        text: str = encode_basestring(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            text = encode_basestring_ascii(value)
        return text
    if kind is float:
        if value - value != 0.0:
            raise ValueError(f"{value} is no JSON value")
        return float.__repr__(value)
    if kind is int:
        return int.__repr__(value)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    inner = indent + step
    colon = ": " if step else ":"
    if kind is dict:
        parts = [f"{json_text(str(key))}{colon}{json_text(item, inner, step)}" for key, item in value.items()]
        opening, closing = "{", "}"
    elif kind is list or kind is tuple:
        parts = [json_text(item, inner, step) for item in value]
        opening, closing = "[", "]"
    else:
        raise TypeError(f"{kind.__name__} has no JSON form")
    if not parts:
        return opening + closing
    if not step:
        return opening + ",".join(parts) + closing
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{closing}"


def document(value: Any) -> None:
    """Print one JSON document: indented on a terminal, on one line otherwise."""
    write((json_text(value, step="  " if os.isatty(_STDOUT) else "") + "\n").encode())


def line(value: Any) -> None:
    """Print one object of a stream, always on one line."""
    write((json_text(value) + "\n").encode())


def write(data: bytes) -> None:
    """All bytes to stdout at once. Raises BrokenPipeError; StorageError for a closed stdout or a full disk behind it."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(_STDOUT, view) :]
        except BrokenPipeError:
            raise
        except BlockingIOError:  # the other side made our end non-blocking
            _wait_until_writable()
        except OSError as error:
            raise StorageError(path="standard output", detail=os.strerror(error.errno or 0)) from None


def _wait_until_writable() -> None:
    import select

    select.select([], [_STDOUT], [])


def error(problem: ClawmemError) -> None:
    """The one line about what went wrong."""
    hint = f" ({problem.hint})" if problem.hint else ""
    _say({"error": problem.document()}, f"error: {problem.message}{hint}")


def warning(code: str, message: str) -> None:
    """One line about something that did not stop the command."""
    if not quiet:
        _say({"warning": {"code": code, "message": message}}, f"warning: {message}")


def summary(values: Mapping[str, Any]) -> None:
    """One line about a whole stream."""
    if not quiet:
        words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
        _say({"summary": dict(values)}, f"summary: {words}")


def _say(value: dict[str, Any], text: str) -> None:
    """A line on stderr: the text on a terminal, JSON otherwise."""
    shown = text if os.isatty(_STDERR) else json_text(value)
    try:
        os.write(_STDERR, (shown + "\n").encode("utf-8", "backslashreplace"))
    except OSError:
        return  # nobody listens; the exit code still tells
