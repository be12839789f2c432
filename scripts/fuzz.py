"""Fuzz every reader for some time; inputs that went wrong are kept under tests/corpus/.

    scripts/fuzz.sh --minutes 10 [--target log --target ndjson] [--seed 1] [--counts FILE]

Prints a line per target and ends with 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.fuzz.engine import examine  # noqa: E402
from tests.fuzz.targets import TARGETS  # noqa: E402

BATCH = 20


def main() -> int:
    """Take turns between the targets until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--target", action="append", choices=list(TARGETS))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--counts", type=Path, help="write the numbers of the run to this JSON file")
    args = parser.parse_args()
    rng, end = random.Random(args.seed), time.monotonic() + 60 * args.minutes
    inputs: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    names = args.target or list(TARGETS)
    while time.monotonic() < end:
        for name in names:
            target = TARGETS[name]
            seeds = list(target.seeds())
            batch = [target.mutate(rng.choice(seeds), rng) for _ in range(BATCH)]
            inputs[name] += len(batch)
            for failure in examine(target, batch):
                failures[name] += 1
                keep(name, failure.data, failure.reason)
            if time.monotonic() > end:
                break
    for name in names:
        print(f"{name}: {inputs[name]} inputs, {failures[name]} failures")
    if args.counts:
        numbers = {"fuzz_inputs": dict(inputs), "fuzz_failures": sum(failures.values()), "fuzz_seed": args.seed}
        args.counts.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    return 1 if failures else 0


def keep(name: str, data: bytes, reason: str) -> None:
    """Put an input into the corpus and say what it did."""
    folder = ROOT / "tests/corpus" / name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / hashlib.sha256(data).hexdigest()[:16]
    file.write_bytes(data)
    print(f"{file.relative_to(ROOT)}: {reason.strip().splitlines()[-1][:400]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
