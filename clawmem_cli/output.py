"""Everything the command prints: JSON on stdout, one line each for errors, warnings and summaries on stderr.

Invariants: stdout carries UTF-8 whatever the locale says, one JSON document (indented on a terminal, one line
otherwise) or one document a line; never NaN or Infinity; bytes go straight to the file descriptor, so nothing is left
to flush at exit and a reader that went away shows at once as BrokenPipeError. stderr never makes a command fail. HOT.
"""

from __future__ import annotations

import os
from _json import encode_basestring, encode_basestring_ascii, make_encoder

from clawmem_core.errors import AnswerLostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Final

    from clawmem_core.errors import ClawmemError
    from clawmem_core.storage.log_reports import Report

_STDOUT: Final = 1
_STDERR: Final = 2
quiet = False  # set once from --quiet; silences warnings and summaries, never errors


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} has no JSON form")


_encode: Final = make_encoder(None, _refuse, encode_basestring, None, ":", ",", False, False, False)
_encode_ascii: Final = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)


def json_bytes(value: Any) -> bytes:
    """JSON on one line, without blanks, of dicts, lists, tuples, str, int, float, bool and None.

    Text stands as UTF-8; where it holds a lone surrogate, which UTF-8 cannot carry, the whole value is ASCII-escaped.
    Raises ValueError for NaN and Infinity, TypeError for anything else.
    """
    try:
        return "".join(_encode(value, 0)).encode()
    except UnicodeEncodeError:
        return "".join(_encode_ascii(value, 0)).encode()


def _indented(value: Any, indent: str = "\n") -> bytes:
    """JSON with one member a line, for people."""
    if not value or not isinstance(value, dict | list | tuple):
        return json_bytes(value)
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [json_bytes(str(key)) + b": " + _indented(item, inner) for key, item in value.items()]
        opening, closing = b"{", b"}"
    else:
        parts = [_indented(item, inner) for item in value]
        opening, closing = b"[", b"]"
    start = inner.encode()
    return opening + start + (b"," + start).join(parts) + indent.encode() + closing


def document(value: Any) -> None:
    """Print one JSON document: indented on a terminal, on one line otherwise."""
    write((_indented(value) if os.isatty(_STDOUT) else json_bytes(value)) + b"\n")


def line(value: Any) -> None:
    """Print one object of a stream, always on one line."""
    write(json_bytes(value) + b"\n")


def write(data: bytes) -> None:
    """All bytes to stdout at once. Raises BrokenPipeError, and AnswerLostError for a closed stdout or a full disk."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(_STDOUT, view) :]
        except BrokenPipeError:
            raise
        except BlockingIOError:  # the other side made our end non-blocking
            _wait_until_writable()
        except OSError as error:
            raise AnswerLostError(detail=os.strerror(error.errno or 0)) from None


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


def reports(found: Iterable[Report]) -> None:
    """What the engine noticed about the store's files and went on with."""
    for report in found:
        warning(report.code, report.message)


def summary(values: Mapping[str, Any]) -> None:
    """One line about a whole stream."""
    if not quiet:
        words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
        _say({"summary": dict(values)}, f"summary: {words}")


def _say(value: dict[str, Any], text: str) -> None:
    """A line on stderr: the text on a terminal, JSON otherwise."""
    shown = text.encode("utf-8", "backslashreplace") if os.isatty(_STDERR) else json_bytes(value)
    try:
        os.write(_STDERR, shown + b"\n")
    except OSError:
        return  # nobody listens; the exit code still tells
