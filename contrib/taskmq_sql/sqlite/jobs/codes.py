"""States and ids as the file stores them."""

from typing import Final

from taskmq.model.states import TERMINAL
from taskmq_sql.jobs.codes import CODES, UNDERWAY_CODES

ENDED: Final = frozenset(CODES[state] for state in TERMINAL)
UNDER_WAY: Final = frozenset(UNDERWAY_CODES)

_LENGTH: Final = 36
_BYTES: Final = 16
_LAST_MS: Final = 2**48 - 1
_SHARDS: Final = 64


def id_bytes(text: str) -> bytes | None:
    """Return the bytes of a job id; None if the text is not a UUID."""
    if len(text) != _LENGTH or not text[8] == text[13] == text[18] == text[23] == "-":
        return None
    try:
        found = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return None
    # `bytes.fromhex` skips blanks.
    return found if len(found) == _BYTES else None


def id_text(value: bytes) -> str:
    """Return the id with these bytes."""
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def first_id(instant: int) -> bytes:
    """Return a lower bound of all ids created at this instant (ms since the epoch) or later."""
    return min(max(instant, 0), _LAST_MS).to_bytes(6) + bytes(10)


def shard_of(value: bytes) -> int:
    """Return the timer shard of a job."""
    return value[-1] % _SHARDS
