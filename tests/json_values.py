"""Values that JSON can carry, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

doubles = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(st.characters(codec=None), max_size=12)  # every code point, lone surrogates included
values = st.recursive(
    st.none() | st.booleans() | doubles | st.integers(-(2**53) + 1, 2**53 - 1) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


def joined(value: object) -> object:
    """The value with surrogate pairs that stand as two code points joined, as a JavaScript string has them."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list):
        return [joined(item) for item in value]
    if isinstance(value, dict):
        return {joined(key): joined(item) for key, item in value.items()}
    return value
