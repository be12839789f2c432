"""A storage layer on the real file system in which one call fails, is cut short, or is the process's last.

Calls are counted from 1. A fault hits call `at`; a lasting one also every later call it fits (a disk that stays full).
One at EVERYWHERE hits every call it fits, once: what is harmless at one call is so at all, so one run shows it of all.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from clawmem_core.storage import fs
from tests.faults.command import CRASHED

CHANGING = frozenset(
    ("pwrite", "ftruncate", "copy_range", "link", "replace", "unlink", "mkdir", "fsync", "fdatasync", "fchmod")
)
GROWING = frozenset(("pwrite", "copy_range", "link", "replace", "mkdir", "fsync", "fdatasync", "create"))
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EINTR": errno.EINTR, "EMFILE": errno.EMFILE}
HARMLESS = frozenset(("EINTR", "short"))  # what the shim must make good by itself
EVERYWHERE = 0


class Call(NamedTuple):
    """One call of a clean run: the layer's method (`create`: an open that may make the file), and its path if any."""

    operation: str
    path: str


class Fault(NamedTuple):
    """What happens at call `at`: an error's name, "short" (half is read or written), "crash" (before the call),
    "torn" (half is written, then the process dies).
    """

    at: int
    kind: str
    lasting: bool = False

    def calls(self, trace: Iterable[Call]) -> int:
        """How many calls of a clean run it hits."""
        return sum(self.kind in kinds_of(call.operation) for call in trace) if self.at == EVERYWHERE else 1


class FaultyLayer:
    """`fs.RealLayer` with a fault. `hits` is seen by the parent of the process that uses the layer."""

    def __init__(self, fault: Fault | None) -> None:
        self.fault = fault
        self.count = 0
        self._shared = mmap.mmap(-1, 8)
        self._trace = -1
        self._interrupted: tuple[Any, ...] = ()

    @property
    def hits(self) -> int:
        """How often the fault has happened."""
        return int.from_bytes(self._shared[:8], "little")

    def trace_to(self, fd: int) -> None:
        """Write each call to a file, a JSON line each."""
        self._trace = fd

    def __getattr__(self, name: str) -> Any:
        real = getattr(fs.RealLayer, name)

        def call(*arguments: Any) -> Any:
            operation = "create" if name == "open" and arguments[1] & os.O_CREAT else name
            self.count += 1
            self._before()
            if self._trace >= 0:
                path = arguments[0] if isinstance(arguments[0], str) else fs.path_of(arguments[0])
                os.write(self._trace, json.dumps([operation, path]).encode() + b"\n")
            if self.fault is not None and self._strikes(self.fault, operation, arguments):
                self._shared[:8] = (self.hits + 1).to_bytes(8, "little")
                return self._strike(self.fault.kind, name, real, arguments)
            return real(*arguments)

        return call

    def _before(self) -> None:
        """Called before every call."""

    def _strikes(self, fault: Fault, operation: str, arguments: tuple[Any, ...]) -> bool:
        if fault.at == EVERYWHERE:
            again = (operation, arguments[0]) == self._interrupted  # the call that was interrupted, made once more
            strikes = fault.kind in kinds_of(operation) and not again
            self._interrupted = (operation, arguments[0]) if strikes and fault.kind == "EINTR" else ()
            return strikes
        if self.count == fault.at:
            return True
        return fault.lasting and self.count > fault.at and fault.kind in kinds_of(operation)

    def _strike(self, kind: str, name: str, real: Any, arguments: tuple[Any, ...]) -> Any:
        if kind in ("short", "torn"):
            arguments = _halved(name, arguments)
            done = real(*arguments)
            if kind == "torn":
                os._exit(CRASHED)
            return done
        if kind == "crash":
            os._exit(CRASHED)
        if name == "close":
            real(*arguments)  # the descriptor is gone whatever close says
        raise OSError(ERRORS[kind], os.strerror(ERRORS[kind]))


def _halved(name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if name == "pwrite":
        fd, data, offset = arguments
        return fd, memoryview(data).cast("B")[: (len(data) + 1) // 2], offset
    if name == "pread":
        fd, size, offset = arguments
        return fd, (size + 1) // 2, offset
    source, target, count, *offsets = arguments
    return source, target, (count + 1) // 2, *offsets


def kinds_of(operation: str) -> list[str]:
    """Every kind of fault that can happen to a call."""
    kinds = ["EIO", "EINTR"]
    if operation in GROWING:
        kinds.append("ENOSPC")
    if operation in ("open", "create"):
        kinds.append("EMFILE")
    if operation in ("pwrite", "pread", "copy_range"):
        kinds.append("short")
    if operation in CHANGING or operation == "create":
        kinds.append("crash")
    if operation == "pwrite":
        kinds.append("torn")
    return kinds


def everywhere() -> list[Fault]:
    """The harmless faults, each at all calls of one run."""
    return [Fault(EVERYWHERE, kind) for kind in sorted(HARMLESS)]


def every_fault(trace: Iterable[Call]) -> list[Fault]:
    """Each kind of fault at each call, and each lasting one that a real disk shows (full, or failing writes)."""
    faults = everywhere()
    for at, call in enumerate(trace, 1):
        faults += [Fault(at, kind) for kind in kinds_of(call.operation) if kind not in HARMLESS]
        if call.operation in GROWING:
            faults += [Fault(at, "ENOSPC", lasting=True)]
    return faults


def one_fault_each(trace: Iterable[Call], turn: int = 0) -> list[Fault]:
    """An error at each call, the kinds taking turns, and a death at every other call that changes something."""
    faults = everywhere()
    changes = turn
    for at, call in enumerate(trace, 1):
        kinds = [kind for kind in kinds_of(call.operation) if kind not in HARMLESS]
        survived = [kind for kind in kinds if kind not in ("crash", "torn")]
        faults.append(Fault(at, survived[(at + turn) % len(survived)]))
        if "crash" in kinds:
            changes += 1
            if changes % 2:
                faults.append(Fault(at, "torn" if "torn" in kinds and changes % 4 == 1 else "crash"))
    return faults
