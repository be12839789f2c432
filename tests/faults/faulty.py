"""A storage layer on the real file system in which one call fails, is cut short, or is the process's last.

Calls are counted from 1. A fault hits call `at`; a lasting one also every later call it fits (a disk that stays full).
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


class FaultyLayer:
    """`fs.RealLayer` with a fault. `hit` is seen by the parent of the process that uses the layer."""

    def __init__(self, fault: Fault | None) -> None:
        self.fault = fault
        self.count = 0
        self._shared = mmap.mmap(-1, 1)
        self._trace = -1

    @property
    def hit(self) -> bool:
        """Whether the fault has happened."""
        return bool(self._shared[0])

    def trace_to(self, fd: int) -> None:
        """Write each call to a file, a JSON line each."""
        self._trace = fd

    def __getattr__(self, name: str) -> Any:
        real = getattr(fs.RealLayer, name)

        def call(*arguments: Any) -> Any:
            operation = "create" if name == "open" and arguments[1] & os.O_CREAT else name
            self.count += 1
            if self._trace >= 0:
                path = arguments[0] if isinstance(arguments[0], str) else fs.path_of(arguments[0])
                os.write(self._trace, json.dumps([operation, path]).encode() + b"\n")
            if self.fault is not None and self._strikes(self.fault, operation):
                self._shared[0] = 1
                return self._strike(self.fault.kind, name, real, arguments)
            return real(*arguments)

        return call

    def _strikes(self, fault: Fault, operation: str) -> bool:
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


def every_fault(trace: Iterable[Call]) -> list[Fault]:
    """Each kind of fault at each call, and each lasting one that a real disk shows (full, or failing writes)."""
    faults = []
    for at, call in enumerate(trace, 1):
        faults += [Fault(at, kind) for kind in kinds_of(call.operation)]
        if call.operation in GROWING:
            faults += [Fault(at, "ENOSPC", lasting=True)]
    return faults


def one_fault_each(trace: Iterable[Call], turn: int = 0) -> list[Fault]:
    """One fault at each call, the kinds taking turns, and a death at every other call that changes something."""
    faults = []
    changes = turn
    for at, call in enumerate(trace, 1):
        kinds = kinds_of(call.operation)
        survived = [kind for kind in kinds if kind not in ("crash", "torn")]
        faults.append(Fault(at, survived[(at + turn) % len(survived)]))
        if "crash" in kinds:
            changes += 1
            if changes % 2:
                faults.append(Fault(at, "torn" if "torn" in kinds and changes % 4 == 1 else "crash"))
    return faults
