"""The one door where input is validated, before any state changes.

Invariants: whatever passes can be stored, read back unchanged and exported as JSON; text is valid UTF-8 without NUL and
lone surrogates; numbers are finite; every length is bounded; vectors leave as the bytes the store will hold, rounded
float64 → float32 → float16 in that order with the range check on the float32 (log-v4.md § 9). Nothing is adjusted
silently: a value is stored as given or refused by name.
"""

from __future__ import annotations

import struct
import sys

from clawmem_core import clock
from clawmem_core.errors import (
    DimensionError,
    InvalidInputError,
    InvalidTimeError,
    InvalidVectorError,
    UnknownKeyError,
)
from clawmem_core.model import MemoryEntry, Record, StoreConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MAX_CHUNK = 16 << 20  # bytes of one text
MAX_TEXT = 64 << 10  # bytes of any other text of a record
MAX_DIM = 65_536
MAX_SETTING = 256  # bytes of a text setting; the log header holds the agent id within 290
MAX_K = 1 << 31
FLOAT16_MAX = 65504.0
FLOAT32_LIMIT = 3.4028234e38  # what is not larger rounds to a finite float32
INFINITE = float("inf")
MILLISECONDS = 1e11  # seconds beyond the year 5138: somebody's milliseconds
MAX_ACTIVATION = 4.0

ENTRY_KEYS = frozenset(MemoryEntry.__slots__)
VECTOR_KEYS = ("embedding", "embedding_f32", "embedding_f16")
#: every key of a record's JSON object that `save` reads or, as `index`, knowingly ignores
OBJECT_KEYS = ENTRY_KEYS.union(VECTOR_KEYS, ("index", "deleted", "activation"))

NUMBERS = frozenset((int, float))  # the types a vector's numbers may have
# the upper byte of a little-endian float16: of all finite values, of all others, of the largest and of the smallest
_FINITE_HIGH = bytes(high for high in range(256) if high & 0x7C != 0x7C)
_UNBOUNDED_HIGH = (0x7C, 0x7D, 0x7E, 0x7F, 0xFC, 0xFD, 0xFE, 0xFF)
_HIGHEST, _LOWEST = 0x7B, 0xFB
_formats: dict[tuple[str, int], struct.Struct] = {}


def _format(kind: str, dim: int) -> struct.Struct:
    """The Struct of `dim` little-endian values of a kind; structs are built once a process."""
    found = _formats.get((kind, dim))
    if found is None:
        found = _formats[kind, dim] = struct.Struct(f"<{dim}{kind}")
    return found


def text(field: str, value: Any, limit: int = MAX_TEXT) -> str:
    """A text that can be stored. Raises InvalidInputError naming the field."""
    if not isinstance(value, str):
        raise InvalidInputError(field=field, detail=f"must be a text, not {_kind(value)}")
    if "\0" in value:
        raise InvalidInputError(field=field, detail="holds a NUL character, which HDF5 texts cannot keep")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInputError(field=field, detail="holds a lone surrogate, which UTF-8 cannot carry") from None
    if size > limit:
        raise InvalidInputError(field=field, detail=f"has {size} bytes, the limit is {limit}")
    return value


def _kind(value: Any) -> str:
    """What a JSON value is, in JSON's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    words = ((str, "a text"), ((int, float), "a number"), ((list, tuple), "an array"), (dict, "an object"))
    return next((word for kind, word in words if isinstance(value, kind)), type(value).__name__)


def timestamp(value: Any, field: str = "timestamp") -> float:
    """Seconds since the epoch from a number or RFC 3339 text with a zone; None is now. Raises InvalidTimeError."""
    if value is None:
        return clock.now()
    if isinstance(value, str):
        from clawmem_core.times import parse_rfc3339

        return parse_rfc3339(value, field=field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTimeError(field=field, detail=f"must be seconds or RFC 3339 text, not {_kind(value)}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = float("inf")
    if seconds != seconds or seconds in (float("inf"), float("-inf")):
        raise InvalidTimeError(field=field, detail="is not a finite number")
    if abs(seconds) > MILLISECONDS:
        raise InvalidTimeError(
            field=field, detail=f"{seconds:.0f} is no time in seconds", hint="milliseconds? divide by 1000"
        )
    return seconds


def number(field: str, value: Any, low: float, high: float) -> float:
    """A finite number within [low, high]. Raises InvalidInputError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(field=field, detail=f"must be a number, not {_kind(value)}")
    if not low <= value:  # false for NaN too
        raise InvalidInputError(field=field, detail=f"must be at least {low:g}")
    if value > high:
        raise InvalidInputError(field=field, detail=f"must be at most {high:g}")
    return float(value)


def integer(field: str, value: Any, low: int, high: int) -> int:
    """A whole number within [low, high]. Raises InvalidInputError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(field=field, detail=f"must be a whole number, not {_kind(value)}")
    if value < low:
        raise InvalidInputError(field=field, detail=f"must be at least {low}")
    if value > high:
        raise InvalidInputError(field=field, detail=f"must be at most {high}")
    return value


def record_id(value: Any) -> int:
    """A record id as an int; whole numbers of other libraries count. Raises InvalidInputError."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidInputError(field="id", detail=f"must be a whole number, not {_kind(value)}")
    return int(value.__index__())


def record_ids(values: Any) -> list[int]:
    """Distinct record ids from one or several. Raises InvalidInputError."""
    several = values if hasattr(values, "__iter__") and not isinstance(values, str | bytes | dict) else [values]
    return list(dict.fromkeys(map(record_id, several)))


def vector(values: Any, dim: int, float16: bool) -> bytes:
    """`dim` numbers as the store holds them: float32 bytes, or float16 where the store is one.

    Raises DimensionError for another length; InvalidVectorError for anything but finite numbers, for magnitudes float16
    cannot hold (65,504), and for a vector that is, or rounds to, all zeros.
    """
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        raise InvalidVectorError(detail=f"must be an array of numbers, not {_kind(values)}")
    if len(values) != dim:
        raise DimensionError(expected=dim, given=len(values))
    kinds = list(map(type, values))
    if kinds.count(float) < dim and not set(kinds) <= NUMBERS:
        values = [value.item() if hasattr(value, "dtype") else value for value in values]
        wrong = [value for value in values if type(value) not in NUMBERS]
        if wrong:
            raise InvalidVectorError(detail=f"must hold numbers only, found {_kind(wrong[0])}")
    packer = _format("f", dim)
    try:
        data = packer.pack(*values)
    except (OverflowError, struct.error):
        raise InvalidVectorError(detail="holds a value beyond float32") from None
    numpy = sys.modules.get("numpy")
    stored = None if numpy is None else _by_numpy(numpy, data, float16)
    return _stored(packer.unpack(data), data, dim, float16) if stored is None else stored


def _by_numpy(numpy: Any, float32: bytes, float16: bool) -> bytes | None:
    """What `_stored` gives, in a fraction of the time, where numpy is loaded; None where there may be a refusal."""
    narrow = numpy.frombuffer(float32, "<f4")
    if float16:
        if not numpy.abs(narrow).max() <= FLOAT16_MAX:  # false for NaN too
            return None
        half = narrow.astype("<f2")
        data: bytes | None = half.tobytes() if half.any() else None
        return data
    wide = narrow.astype(numpy.float64)  # in which no square of a float32 overflows or vanishes
    return float32 if 0.0 < wide.dot(wide) < INFINITE else None


def vector_from_bytes(data: bytes, width: int, dim: int, float16: bool) -> bytes:
    """Little-endian float32 (width 4) or float16 (width 2) bytes as the store holds them; refuses as `vector` does."""
    if len(data) != width * dim:
        raise DimensionError(expected=dim, given=len(data) // width if len(data) % width == 0 else len(data) / width)
    if width == 2 and float16:
        if data[1::2].translate(None, _FINITE_HIGH):
            raise InvalidVectorError(detail="holds NaN or infinity")
        return _nonzero_half(data)
    values = _format("e" if width == 2 else "f", dim).unpack(data)
    return _stored(values, _format("f", dim).pack(*values) if width == 2 else data, dim, float16)


def _stored(values: Sequence[float], float32: bytes, dim: int, float16: bool) -> bytes:
    """Float32 values, already packed as `float32`, in the width of the store."""
    total = sum(values)  # NaN or infinite if and only if one of the values is: float32 sums cannot overflow float64
    if total - total != 0.0:
        raise InvalidVectorError(detail="holds NaN or infinity")
    if not float16:
        if not any(values):
            raise _all_zeros()
        return float32
    try:
        data = _format("e", dim).pack(*values)
    except OverflowError:
        raise _beyond_half(values) from None
    high = data[1::2]
    if (_HIGHEST in high or _LOWEST in high) and not -FLOAT16_MAX <= min(values) <= max(values) <= FLOAT16_MAX:
        raise _beyond_half(values)  # a value just above the limit is rounded to it without an error
    return _nonzero_half(data)


def plain_halves(vectors: Sequence[bytes]) -> bool:
    """Whether all of some little-endian float16 vectors are finite and have a byte that no zero has."""
    high = b"".join(vectors)[1::2]
    return not any(byte in high for byte in _UNBOUNDED_HIGH) and all(vector.strip(b"\x00\x80") for vector in vectors)


def _nonzero_half(data: bytes) -> bytes:
    """Little-endian float16 bytes, unless every value is +0 or -0."""
    if not data[1::2].translate(None, b"\x00\x80") and not data[::2].strip(b"\x00"):
        raise _all_zeros()
    return data


def _all_zeros() -> InvalidVectorError:
    return InvalidVectorError(detail="is all zeros (after rounding)", hint="leave the vector out if there is none")


def _beyond_half(values: Sequence[float]) -> InvalidVectorError:
    return InvalidVectorError(
        detail=f"holds {max(values, key=abs):g}, beyond the ±65504 of float16",
        hint="scale the vectors, or create the store with --f32",
    )


def object_vector(fields: dict[str, Any], dim: int, float16: bool) -> bytes | None:
    """The vector of a record's JSON object, under `embedding`, `embedding_f32` or `embedding_f16`; None if absent."""
    given = [name for name in VECTOR_KEYS if fields.get(name) is not None]
    if len(given) > 1:
        raise InvalidVectorError(detail=f"given twice, as {' and '.join(given)}")
    if not given:
        return None
    value = fields[given[0]]
    if given[0] == "embedding":
        return vector(value, dim, float16)
    if not isinstance(value, str):
        raise InvalidVectorError(detail=f"{given[0]} must be base64 text, not {_kind(value)}")
    from binascii import Error, a2b_base64

    if len(value) > 6 * MAX_DIM:
        raise InvalidVectorError(detail=f"{given[0]} is longer than any vector")
    try:
        data = a2b_base64(value.encode("ascii"), strict_mode=True)
    except (Error, UnicodeEncodeError):
        raise InvalidVectorError(detail=f"{given[0]} is not base64") from None
    return vector_from_bytes(data, 2 if given[0] == "embedding_f16" else 4, dim, float16)


def object_record(fields: dict[str, Any], dim: int, float16: bool) -> Record:
    """A record (id -1) from a JSON object. Keys that nothing reads are for `unknown_keys`. Raises as the parts do."""
    chunk = fields.get("chunk")
    if chunk is None:
        raise InvalidInputError(field="chunk", detail="is required")
    found = _record(
        chunk,
        timestamp(fields.get("timestamp")),
        fields.get("source_channel", "cli"),
        fields.get("session_id", ""),
        tags(fields.get("tags", "")),
        fields.get("key", ""),
        fields.get("source_id", ""),
    )
    found.vector = object_vector(fields, dim, float16)
    if "activation" in fields:
        found.activation = activation(fields["activation"])
    if "deleted" in fields:
        if not isinstance(fields["deleted"], bool):
            raise InvalidInputError(field="deleted", detail="must be true or false")
        found.deleted = fields["deleted"]
    return found


def entry_record(entry: MemoryEntry, dim: int, float16: bool) -> Record:
    """A record (id -1) from a library caller's entry. Raises as the parts do."""
    if not isinstance(entry, MemoryEntry):
        raise InvalidInputError(field="entry", detail=f"must be a MemoryEntry, not {_kind(entry)}")
    found = _record(
        entry.chunk, timestamp(entry.timestamp), entry.source_channel, entry.session_id, entry.tags, entry.key,
        entry.source_id,
    )  # fmt: skip
    if entry.embedding is not None:
        found.vector = vector(entry.embedding, dim, float16)
    return found


def _record(
    chunk: Any, seconds: float, channel: Any, session_id: Any, tag_text: Any, key: Any, source_id: Any
) -> Record:
    if not _plainly_storable((chunk, channel, session_id, tag_text, key, source_id)):
        for name, value in zip(_TEXT_FIELDS, (channel, session_id, tag_text, key, source_id), strict=True):
            text(name, value)
        text("chunk", chunk, MAX_CHUNK)
    if not chunk:
        raise InvalidInputError(field="chunk", detail="is empty")
    found = Record(-1, chunk, seconds, channel, session_id, tag_text)
    found.key, found.source_id = key, source_id
    return found


_TEXT_FIELDS = ("source_channel", "session_id", "tags", "key", "source_id")


def _plainly_storable(texts: tuple[Any, ...]) -> bool:
    """Whether all of these are texts that pass `text`, judged together; False where one by one must tell."""
    try:
        joined = "".join(texts)
        joined.encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return len(joined) <= MAX_TEXT // 4 and "\0" not in joined


def tags(value: Any) -> Any:
    """Tags as one text; a JSON list of texts is joined by commas."""
    if isinstance(value, list):
        if not all(isinstance(part, str) for part in value):
            raise InvalidInputError(field="tags", detail="must be a text or a list of texts")
        return ",".join(value)
    return value


def activation(value: Any) -> float:
    """An activation weight as the float32 a store holds. Raises InvalidInputError outside [0, 4]."""
    weight = number("activation", value, 0.0, MAX_ACTIVATION)
    rounded: float = struct.unpack("<f", struct.pack("<f", weight))[0]
    return rounded


def unknown_keys(fields: dict[str, Any], strict: bool) -> list[str]:
    """Keys of a record's JSON object that nothing reads; with `strict` the first raises UnknownKeyError."""
    if fields.keys() <= OBJECT_KEYS:
        return []
    found = [key for key in fields if key not in OBJECT_KEYS]
    if found and strict:
        raise UnknownKeyError(key=found[0])
    return found


def weights(vector_weight: Any, keyword_weight: Any) -> tuple[float, float]:
    """Both fusion weights: finite, not negative, not both zero. Raises InvalidInputError."""
    pair = number("vector-weight", vector_weight, 0.0, 1e6), number("keyword-weight", keyword_weight, 0.0, 1e6)
    if not any(pair):
        raise InvalidInputError(field="vector-weight", detail="and keyword-weight are both zero")
    return pair


#: least and greatest value of each numeric setting
_SETTING_RANGES: dict[str, tuple[float, float]] = {
    "dim": (1, MAX_DIM), "chunk_size": (0, 1 << 31), "overlap": (0, 1 << 31), "compression_level": (0, 9),
    "compact_threshold": (0.0, 1.0), "hebbian_boost": (0.0, MAX_ACTIVATION), "decay_factor": (0.0, 1.0),
    "wal_max_entries": (1, 1 << 31), "hnsw_m": (2, 512), "hnsw_ef_construction": (1, 100_000),
    "hnsw_ef_search": (0, 100_000), "vector_weight": (0.0, 1e6), "keyword_weight": (0.0, 1e6),
    "neighbour_weight": (0.0, 10.0), "session_prior_weight": (0.0, 10.0),
}  # fmt: skip


def config(settings: StoreConfig) -> StoreConfig:
    """A store's settings, every one within its range; `created_at` is set where it is empty.

    Raises InvalidInputError naming the setting.
    """
    for name, default in StoreConfig.FIELDS.items():
        value = getattr(settings, name)
        if isinstance(default, bool):
            if not isinstance(value, bool):
                raise InvalidInputError(field=name, detail="must be true or false")
        elif isinstance(default, int):
            integer(name, value, *map(int, _SETTING_RANGES[name]))
        elif isinstance(default, float):
            number(name, value, *_SETTING_RANGES[name])
        else:
            text(name, value, MAX_SETTING)
    weights(settings.vector_weight, settings.keyword_weight)
    if settings.compression and not settings.compression_level:
        settings.compression_level = 4
    if not settings.created_at:
        from clawmem_core.times import format_rfc3339

        settings.created_at = format_rfc3339(float(int(clock.now())))
    return settings
