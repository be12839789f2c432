"""The `clawmem` command: thin verbs over clawmem_core, JSON in and JSON out.

A verb is one row of options.py and one module. To add one: write the row (and `fast=True` only if its module obeys the
hot path rule), write `clawmem_cli/<verb>.py` with `def run(args: Arguments) -> int` (`-` becomes `_`; the words of a
group such as `audit show` are functions `run_show` of module `audit`), print through output.py, raise ClawmemError for
whatever is wrong, add `docs/schema/<verb>.schema.json` and `tests/cli/test_<verb>.py`, then run
`scripts/generate_docs.py`. Nothing else knows the list of verbs.
"""
