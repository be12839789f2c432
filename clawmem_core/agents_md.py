"""AGENTS.md: a store described in Markdown for agents that read files (spec/store.md § 7).

Invariant: no text of a user can start a line, open markup or span lines: a memory must not write instructions into a
file that agents obey.
"""

from __future__ import annotations

import os

from clawmem_core.errors import InvalidTimeError
from clawmem_core.times import format_rfc3339, parse_rfc3339

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clawmem_core.view import View

_MARKUP = frozenset("\\`*_{}[]()<>#+-!|~&\"'$:@")
_LONGEST = 80


def escaped(text: str) -> str:
    """User text on one line, cut to 80 characters, with everything Markdown or HTML could read escaped."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    shown = " ".join(shown.split())
    if len(shown) > _LONGEST:
        shown = shown[: _LONGEST - 1] + "…"
    return "".join(f"\\{char}" if char in _MARKUP else char for char in shown)


def _time(text: str) -> str:
    """A setting that should be a time; escaped where it is none."""
    try:
        return format_rfc3339(parse_rfc3339(text))
    except InvalidTimeError:
        return escaped(text)


def agents_md(view: View) -> str:
    """The Markdown document of a store, without a line break at its end."""
    config, base, overlay = view.config(), view.base, view.overlay
    sessions = list(overlay.all_sessions())
    entities = list(overlay.all_entities())
    latest = max(sessions, key=lambda row: row.timestamp, default=None)
    level = f"gzip({config['compression_level']})" if config["compression"] else "none"
    sections = {
        "Identity": [
            ("Agent ID", escaped(config["agent_id"])),
            ("Memory file", escaped(os.fsencode(view.paths.given).decode("utf-8", "replace"))),
            ("Schema version", "1.0"),
            ("Created", _time(config["created_at"])),
            ("Embedder", f"{escaped(config['embedder'])} ({base.dim}d)"),
        ],
        "Memory Store": [
            ("Active memories", str(view.state.active)),
            ("Deleted (tombstoned)", str(view.state.rows - view.state.active)),
            ("Total entries", str(view.state.rows)),
            ("Storage", f"{'float16' if base.float16 else 'float32'}, compression {level}"),
        ],
        "Sessions": [
            ("Total sessions", str(len(sessions))),
            (
                "Most recent session",
                "none" if latest is None else f"{escaped(latest.id)} ({format_rfc3339(latest.timestamp)})",
            ),
        ],
        "Knowledge Graph": [
            ("Entities", str(len(entities))),
            ("Relations", str(sum(1 for _ in overlay.all_relations()))),
            ("Top entities", ", ".join(escaped(row.name) for row in entities[:5]) or "none"),
        ],
        "Search Capabilities": [
            ("Vector search", "exact cosine similarity"),
            (
                "Hybrid search",
                f"vector {config['vector_weight']:g} + BM25 {config['keyword_weight']:g}, weighted sum; "
                f"tokenizer {escaped(config['tokenizer'])}",
            ),
            ("Activation", f"boost {config['hebbian_boost']:g}, decay {config['decay_factor']:g} a tick"),
        ],
    }
    lines = [f"# Agent Memory — {escaped(config['agent_id'])}"]
    for title, rows in sections.items():
        lines += ["", f"## {title}", ""]
        lines += [f"- **{name}**: {value}" for name, value in rows]
    return "\n".join(lines)
