"""The console script: runs well-formed command lines of the small verbs at once, hands everything else to typer.

Invariants: every way out has one of the documented exit codes; a failure is one line on stderr, never a traceback;
imports here are paid by every command. HOT.
"""

from __future__ import annotations

import gc
import os
import sys

from clawmem_cli import options, output, parsing
from clawmem_core.errors import ClawmemError, InternalError, InterruptedByUserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

BROKEN_PIPE = 141  # what a shell shows for a process that SIGPIPE ended


def main() -> NoReturn:
    """Run the command line of this process and end it.

    Everything is written and synced by now, so the interpreter is not taken apart: that costs more than a whole save.
    """
    gc.set_threshold(100_000)  # looking for cycles among what start-up makes costs more than they weigh
    _occupy_standard_descriptors()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # should numpy load: its threads cost more than they give here
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):  # ours is all written; a library's warning may wait here
        if stream is not None:
            try:
                stream.flush()
            except OSError:
                continue  # nobody reads it
    os._exit(code)


def run(words: Sequence[str]) -> int:
    """Run one command line, given as the texts of sys.argv; returns the exit code."""
    try:
        found = parsing.recognise(words, options.VERBS, options.GLOBAL)
        if found is None:
            from clawmem_cli import app

            found = app.parse(words)
            if found is None:
                return 0
        return execute(*found)
    except ClawmemError as problem:
        output.error(problem)
        return problem.exit
    except BrokenPipeError:
        return BROKEN_PIPE
    except KeyboardInterrupt:
        output.error(InterruptedByUserError())
        return InterruptedByUserError.exit
    except Exception as fault:  # the one place where a fault of the program becomes an answer
        output.error(InternalError(detail=_describe(fault)))
        return InternalError.exit


def execute(verb: parsing.Verb, given: dict[str, Any]) -> int:
    """Convert the raw values of a command line and run its verb; returns the exit code."""
    args = parsing.finish(verb, given, options.GLOBAL)
    output.quiet = args.quiet
    first, _, second = verb.words.replace("-", "_").partition(" ")
    module = __import__(f"clawmem_cli.{first}", fromlist=("run",))
    code: int = getattr(module, f"run_{second}" if second else "run")(args)
    return code


def _occupy_standard_descriptors() -> None:
    """Open the null device on a closed 0, 1 or 2, so that no file of a store gets that number and is written to."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # takes the lowest free number; writing to it fails and is reported


def _describe(fault: Exception) -> str:
    """What happened and where, in one line."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}" if trace is not None else ""
    return f"{type(fault).__name__}: {fault}{where}"
