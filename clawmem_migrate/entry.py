"""The console script `clawmem-migrate`.

Invariants: every way out has one of the documented exit codes; a failure is one line on stderr, never a traceback;
SIGTERM ends a run as Control-C does, with nothing half-made left behind.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is loaded; nothing here multiplies matrices

from clawmem_cli import output
from clawmem_core.errors import ClawmemError, InternalError, InterruptedByUserError

BROKEN_PIPE = 141


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    for descriptor in range(3):  # so that no file of a store gets one of these numbers and is written to
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
    gc.set_threshold(100_000)  # rows by the thousand make no cycles, and looking for them takes its time
    signal.signal(signal.SIGTERM, _interrupt)
    return run(sys.argv[1:])


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def run(words: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        from clawmem_migrate import cli

        return cli.run(words)
    except ClawmemError as problem:
        output.error(problem)
        return problem.exit
    except BrokenPipeError:
        return BROKEN_PIPE
    except KeyboardInterrupt:
        output.error(InterruptedByUserError(hint="no output was made"))
        return InterruptedByUserError.exit
    except Exception as fault:  # the one place where a fault of the program becomes an answer
        trace = fault.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f" at {trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}" if trace is not None else ""
        output.error(InternalError(detail=f"{type(fault).__name__}: {fault}{where}"))
        return InternalError.exit
