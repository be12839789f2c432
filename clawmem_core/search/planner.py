"""How the candidates of a search are found: a choice by cost, never by result. Loaded by one-shot search.

Costs measured at 384 dimensions without numpy: reading and comparing one stored vector 2 µs, scanning one int8 row
0.05 µs plus the exact comparison of the best, scoring one record's words 10 µs, spreading one posting 1 µs.
"""

from __future__ import annotations

GATHER_VECTORS = 1024  # rows up to which every stored vector is compared
GATHER_WORDS = 128  # rows up to which every record's words are scored one by one
GATHER_ARRAYS = 4096  # the first with numpy

GATHER, SCAN, SCAN_MASKED, INDEX = "gather-exact", "scan", "scan+mask", "index"


def vector_plan(passing: int, filtered: bool, gather: int) -> str:
    """For the vector arm, from the rows that pass the filters and how many are worth comparing one by one."""
    if passing <= gather:
        return GATHER
    return SCAN_MASKED if filtered else SCAN


def keyword_plan(passing: int, filtered: bool, postings: int) -> str:
    """For the keyword arm, from the rows that pass and the postings of all terms."""
    if passing <= GATHER_WORDS and passing * 10 < postings:
        return GATHER
    return SCAN_MASKED if filtered else SCAN
