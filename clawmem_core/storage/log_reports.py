"""What can be noticed about a store's log: one code word and one message each (also the findings of `doctor`).

Invariant: code words are unique and never renamed. A reader only tells; a writer acts (log_recovery.py) and tells.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

MESSAGES: Final = {
    "log-missing": "there is no log beside the store (a copy without it?); entries that were only there are missing",
    "log-empty": "the log is empty, not even a header is left",
    "log-legacy": "the log is of the ancestor's kind; its entries are taken in by the next write or flush-wal",
    "log-header-bad": "the log's header is damaged; none of its entries can be applied",
    "log-foreign": "the log belongs to another store; none of its entries is applied",
    "log-other-checkpoint": "the log continues another checkpoint of this store (a restored backup?); it is left out",
    "log-mark-broken": "the log lost a part that the store file already holds; it is not applied",
    "log-already-applied": "a checkpoint was interrupted before its last step; nothing is applied twice",
    "log-torn": "the last write to the log was not finished; what it left is not applied",
    "log-unsynced-lost": "entries that were never synced are lost (power failure)",
    "log-corrupt": "the log is damaged in the middle; entries behind the damage are not applied",
}


class Report:
    """Something noticed about a store's log. `code`: one of MESSAGES; `message`: one line; `details`: plain values."""

    __slots__ = ("code", "details", "message")

    def __init__(self, code: str, kept: str = "", **details: Any) -> None:
        """`kept`: path under which the bytes were quarantined."""
        self.code, self.message, self.details = code, MESSAGES[code], details
        if kept:
            self.message += f"; the log as it was is kept in {kept}"
            details["quarantine"] = kept

    def __repr__(self) -> str:
        return f"Report({self.code}: {self.message})"
