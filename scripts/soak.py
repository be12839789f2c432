"""Writers, readers, checkpoints and kills on one store for some minutes; then: acknowledged = found.

python scripts/soak.py --minutes 10 [--writers 6] [--readers 3] [--counts FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from clawmem_core import MemoryStore  # noqa: E402
from tests.faults import crowd, states  # noqa: E402


def main() -> int:
    """Keep so many processes at work, killing one now and then; compare at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--writers", type=int, default=6)
    parser.add_argument("--readers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--counts", type=Path, help="write the numbers of the run to this JSON file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "m.h5"
        MemoryStore.create(path, dim=crowd.DIM, wal_max_entries=50).close()
        kills = work(path, args)
        failures = check(path)
        told = len(crowd.acknowledged(path.parent))
    numbers = {"soak_minutes": args.minutes, "soak_kills": kills, "soak_groups": told, "soak_failures": failures}
    print(json.dumps(numbers))
    if args.counts:
        args.counts.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    return 1 if failures else 0


def work(path: Path, args: argparse.Namespace) -> int:
    """Let processes work until the time is over; how many were killed."""
    rng, errors = random.Random(args.seed), path.parent / "errors"
    end = time.monotonic() + 60 * args.minutes
    kills = number = 0

    def over(_: int) -> bool:
        return time.monotonic() > end

    def writer() -> int:
        nonlocal number
        number += 1
        name, journal = f"w{number}", path.parent / f"{number}.journal"
        checkpoints = number % 3 == 0
        return crowd.spawn(lambda: crowd.write(path, journal, name, over, rng.randrange(1 << 30), checkpoints), errors)

    readers = [crowd.spawn(lambda: crowd.read(path, over), errors) for _ in range(args.readers)]
    writers = [writer() for _ in range(args.writers)]
    while not over(0):
        time.sleep(rng.uniform(0.05, 0.8))
        victim = rng.randrange(len(writers))
        os.kill(writers[victim], signal.SIGKILL)
        os.waitpid(writers[victim], 0)
        kills += 1
        writers[victim] = writer()
    crowd.wait([*writers, *readers])
    return kills


def check(path: Path) -> int:
    """Compare what is stored with what was acknowledged; prints and counts what is wrong."""
    errors = path.parent / "errors"
    problems = [errors.read_text("utf-8")] if errors.exists() else []
    for when in ("at the end", "after a checkpoint"):
        found = crowd.groups_of(path)
        missing = [group for group in crowd.acknowledged(path.parent) if group not in found]
        parts = [group for group, count in found.items() if count != crowd.GROUP]
        problems += [f"{when}: missing {missing[:5]}"] if missing else []
        problems += [f"{when}: not whole {parts[:5]}"] if parts else []
        with MemoryStore.open(path) as store:
            store.flush_wal()
    codes = states.findings(path)
    problems += [f"doctor finds {sorted(codes)}"] if codes else []
    for problem in problems:
        print(problem)
    return len(problems)


if __name__ == "__main__":
    sys.exit(main())
