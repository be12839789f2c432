#!/usr/bin/env python3
"""Measure clawmem against the interpreter, its libraries and its peers, and judge the table of targets.

    scripts/bench.py [--quick] [--large] [--peers] [--only WORD]... [--json FILE]
    scripts/bench.py --report FILE >docs/performance.md

Makes an environment of its own, `.bench`, with this tree installed as a user would install it, both extras and what it
is compared with (bench-requirements.txt; uses the network the first time). Builds stores of 1K, 10K and 100K records
(`--quick`: without 100K; `--large`: 1M too) in a temporary folder. What is compared is measured in turn, in rounds of
one run each, so that a slow moment of the machine hits all alike; every answer is checked; printed are medians and
whether each target is met. `--peers`: also SQLite FTS5, sqlite-vec, bm25s and usearch. `--only`: only the groups whose
name holds the word (one-shot, in process, bulk, sizes). `--json`: keep all numbers. `--report`: nothing is measured,
the page docs/performance.md is made of such numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench import environment, report

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run what the command line asks for."""
    args = arguments().parse_args()
    if args.report is not None:
        print(report.page(json.loads(args.report.read_text())), end="")
        return
    python = ROOT / ".bench" / "bin" / "python"
    if Path(sys.prefix).resolve() != python.parents[1].resolve():
        environment.prepare(ROOT)
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(python, [str(python), "-I", os.path.abspath(__file__), *sys.argv[1:]])
    run = measure(args)
    if args.json is not None:
        args.json.write_text(json.dumps(run, indent=1) + "\n")
    print(report.page(run), end="")


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="stores of 1K and 10K records only")
    parser.add_argument("--large", action="store_true", help="a store of 1M records too")
    parser.add_argument("--peers", action="store_true", help="compare with peers as well")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="groups whose name holds the word")
    parser.add_argument("--rounds", type=int, default=11, metavar="N", help="rounds of whole processes, at least 9")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    parser.add_argument("--report", type=Path, metavar="FILE", help="print the page made of such a file")
    return parser


def measure(args: argparse.Namespace) -> report.Run:
    """Every group, one after the other, on the same stores. The environment is .bench from here on."""
    from bench import bulk, library, processes, sizes
    from bench.stores import Stores

    counts = [1_000, 10_000] if args.quick else [1_000, 10_000, 100_000]
    if args.large:
        counts.append(1_000_000)
    groups = {
        "one-shot": processes.measure,
        "in process": library.measure,
        "bulk": bulk.measure,
        "sizes": sizes.measure,
    }
    run: report.Run = {"machine": environment.machine(), "settings": {}, "measured": {}}
    run["settings"] = {"counts": counts, "rounds": args.rounds, "peers": args.peers, "only": args.only}
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench", prefix="data-") as folder:
        stores = Stores(Path(folder), counts, args.peers)
        for name, group in groups.items():
            if not args.only or any(word in name for word in args.only):
                print(f"{name} …", file=sys.stderr, flush=True)
                run["measured"].update(group(stores, args.rounds))
    run["machine"]["load"] = environment.load()
    return run


if __name__ == "__main__":
    main()
