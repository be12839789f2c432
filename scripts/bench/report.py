"""The page of a run: machine, targets, and every number with its range. Markdown, the same for the same run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bench import targets

#: {"machine": …, "settings": …, "measured": {name: timing.Measured}}
Run = dict[str, dict[str, Any]]

HEAD = """# Performance

Made by `scripts/bench.py --report` from the numbers of one run; see there for what is measured and how. Ratios are
between medians of the same interleaved rounds; absolute times change with the machine and whatever else it does.
"""


def page(run: Run) -> str:
    """The whole page."""
    verdicts = targets.judge(run["measured"])
    missed = [verdict for verdict in verdicts if not verdict.met]
    parts = [HEAD, _machine(run), f"## Targets\n\n{len(verdicts) - len(missed)} of {len(verdicts)} met.\n"]
    parts.append(table(("what", "compared with", "target", "measured", "processor time", ""), map(_row, verdicts)))
    notes = [verdict for verdict in missed if verdict.target.note]
    if notes:
        parts.append("## Why some are missed\n")
        parts.append("\n".join(f"- {named(verdict.target)}: {verdict.target.note}" for verdict in notes) + "\n")
    parts.append("## All numbers\n")
    parts.append(table(("what", "median", "least", "most", "processor time", "rounds"), _numbers(run["measured"])))
    return "\n".join(parts)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def named(target: targets.Target) -> str:
    """A target in words."""
    return target.what + (f" against {target.floor}" if target.floor else "")


def figure(value: float, unit: str = "") -> str:
    """A number of about three digits with its unit."""
    size = abs(value)
    text = (
        f"{value:,.0f}"
        if size >= 1000
        else f"{value:.1f}"
        if size >= 10
        else f"{value:.3g}"
        if unit
        else f"{value:.4g}"
    )
    return text + (unit if unit in ("×", "") else f" {unit}")


def _row(verdict: targets.Verdict) -> list[str]:
    target, value, met, by_cpu = verdict
    sign = "≥" if target.least else "≤"
    return [
        target.what, target.floor, f"{sign} {figure(target.limit, target.unit)}", figure(value, target.unit),
        "" if by_cpu is None else figure(by_cpu, target.unit), "met" if met else "**missed**",
    ]  # fmt: skip


def _numbers(measured: Mapping[str, Mapping[str, Any]]) -> Iterable[list[str]]:
    for name, one in measured.items():
        unit = str(one["unit"])
        timed = one["rounds"] > 1
        yield [
            name, figure(one["median"], unit), figure(one["low"], unit) if timed else "",
            figure(one["high"], unit) if timed else "", figure(one["cpu"], unit) if "cpu" in one else "",
            str(one["rounds"]) if timed else "counted",
        ]  # fmt: skip


def _machine(run: Run) -> str:
    machine, settings = run["machine"], run["settings"]
    libraries = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items())
    loads = " and ".join(str(machine[name]) for name in ("load_before", "load") if name in machine)
    return (
        f"Measured on {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{machine['system']}, Python {machine['python']}, clawmem {machine['clawmem']}; {libraries}. "
        f"{settings['rounds']} rounds after one to warm up; load average before and after: {loads}.\n"
    )
