"""Give a target one input after the other in a forked process, and judge time, memory, exit codes and survival.

Limits, per input: ten seconds of processor time, 200 MB + four times its size of memory, documented exit codes, no
traceback, no signal.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import shutil
import signal
import struct
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from clawmem_cli import entry, options, output
from tests.faults.command import DOCUMENTED, VERBS, Answer

SECONDS = 10.0
MEMORY, PER_BYTE = 200 << 20, 4
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Target(Protocol):
    """Something that reads what others wrote."""

    name: str

    def seeds(self) -> Sequence[bytes]:
        """Inputs to start from."""

    def run(self, data: bytes, folder: Path, call: Caller) -> None:
        """Feed one input. Raises AssertionError where more than survival is at stake."""


class Caller(Protocol):
    """Runs a command of the toolchain in this process."""

    def __call__(self, *words: str | Path, stdin: bytes = b"") -> Answer: ...


class Failure(NamedTuple):
    """An input that went wrong, and how."""

    target: str
    data: bytes
    reason: str


def call(*words: str | Path, stdin: bytes = b"") -> Answer:
    """Run `clawmem WORDS…` here, judge how it ended, and give its answer back."""
    files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    os.pwrite(files[0], stdin, 0)
    for target, fd in enumerate(files):
        os.dup2(fd, target)
    output.quiet = False
    options.VERBS = VERBS
    code = entry.run([os.fsdecode(word) for word in words])
    answer = Answer(code, *(os.pread(fd, os.fstat(fd).st_size, 0) for fd in files[1:]))
    for fd in files:
        os.close(fd)
    assert answer.code in DOCUMENTED, answer
    assert b"Traceback" not in answer.err, answer
    json.loads(b"[" + b",".join(answer.err.splitlines()) + b"]")
    return answer


def examine(target: Target, inputs: Sequence[bytes]) -> list[Failure]:
    """Feed every input; those that went wrong."""
    failures: list[Failure] = []
    place = Path(tempfile.mkdtemp(prefix="fuzz-", dir=SCRATCH))
    shared = mmap.mmap(-1, 4)
    try:
        start = 0
        while start < len(inputs):
            reading, writing = os.pipe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if not child:
                os.close(reading)
                _child(target, inputs, start, place, shared, writing)
            os.close(writing)
            with os.fdopen(reading, "rb") as pipe:
                text = pipe.read()
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            for line in text.splitlines():
                number, reason = json.loads(line)
                failures.append(Failure(target.name, inputs[number], reason))
            if status == 0:
                break
            at = struct.unpack("<I", shared[:4])[0]
            failures.append(Failure(target.name, inputs[at], f"the process ended with {status}"))
            start = at + 1
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return failures


def _child(target: Target, inputs: Sequence[bytes], start: int, place: Path, shared: mmap.mmap, pipe: int) -> None:
    status = 70
    try:
        for number in range(start, len(inputs)):
            shared[:4] = struct.pack("<I", number)
            reason = _feed(target, inputs[number], place / str(number))
            if reason:
                os.write(pipe, json.dumps([number, reason[-3000:]]).encode() + b"\n")
        status = 0
    finally:
        os._exit(status)


def _feed(target: Target, data: bytes, folder: Path) -> str:
    """What went wrong with one input, "" for nothing."""
    allowed = MEMORY + PER_BYTE * len(data)
    folder.mkdir()
    _forget_peak()
    before, began = _memory("VmHWM"), time.process_time()
    resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + 2 * allowed, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its signal ends the process
    try:
        target.run(data, folder, call)
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        shutil.rmtree(folder, ignore_errors=True)
    grown, took = _memory("VmHWM") - before, time.process_time() - began
    if grown > allowed:
        return f"{grown >> 20} MiB of memory for {len(data)} bytes"
    return f"{took:.1f} s" if took > SECONDS else ""


def _forget_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:  # not everywhere allowed; the peak then only grows, which hides nothing
        return


def _memory(name: str) -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
    raise AssertionError(f"/proc says nothing of {name}")
