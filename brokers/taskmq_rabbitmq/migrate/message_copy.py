"""Properties of a message as bytes, for a copy in another queue. Pure.

The sender's properties stay byte for byte. Others that would change the meaning of the copy are dropped: RabbitMQ's
own record of deaths and deliveries, which 3.x believes when a client sends it; `CC`, which would route copies
elsewhere, too; and `user_id`, which RabbitMQ only accepts from that user.
"""

import struct
from typing import Final

from taskmq_rabbitmq.amqp.properties import WireError

_HEADERS: Final = 1 << 13
_USER_ID: Final = 1 << 4
# From the highest bit on, in the order of the values: size of a value in bytes; 0: a short string.
_SIZES: Final = {
    1 << 15: 0,
    1 << 14: 0,
    _HEADERS: -1,
    1 << 12: 1,
    1 << 11: 1,
    1 << 10: 0,
    1 << 9: 0,
    1 << 8: 0,
    1 << 7: 0,
    1 << 6: 8,
    1 << 5: 0,
    _USER_ID: 0,
    1 << 3: 0,
    1 << 2: 0,
}
# Size of a table field's value after its type; -4: it is preceded by its length in four bytes.
_FIELDS: Final = {
    **dict.fromkeys(b"tbB", 1),
    **dict.fromkeys(b"sUu", 2),
    **dict.fromkeys(b"Iif", 4),
    **dict.fromkeys(b"lLdT", 8),
    ord("D"): 5,
    ord("V"): 0,
    **dict.fromkeys(b"SxAF", -4),
}
_DROPPED: Final = (b"x-death", b"x-first-death-", b"x-last-death-", b"x-delivery-count", b"x-acquired-count")
_CC: Final = b"CC"

_word = struct.Struct(">I")
_half = struct.Struct(">H")


def copied_properties(flags: int, values: bytes) -> bytes:
    """Return flags and values for `frames.publish_frames`.

    Raises:
        WireError: the values cannot be read.
    """
    parts: list[bytes] = []
    at = 0
    kept = flags
    try:
        for flag, size in _SIZES.items():
            if not flags & flag:
                continue
            end = at + (size or 1 + values[at])
            if flag == _HEADERS:
                end = at + 4 + _word.unpack_from(values, at)[0]
                parts.append(_without_dropped(values[at + 4 : end]))
            elif flag == _USER_ID:
                kept &= ~_USER_ID
            else:
                parts.append(values[at:end])
            at = end
    except (IndexError, struct.error) as error:
        raise WireError(f"cannot decode the properties: {error}") from error
    if at != len(values):
        raise WireError(f"cannot decode the properties: {len(values) - at} bytes too many")
    return b"".join((_half.pack(kept), *parts))


def _without_dropped(table: bytes) -> bytes:
    fields: list[bytes] = []
    at = 0
    while at < len(table):
        value_at = at + 1 + table[at]
        name = table[at + 1 : value_at]
        kind = table[value_at]
        if kind not in _FIELDS:
            raise WireError(f"header {name!r} has the unknown type {chr(kind)!r}")
        size = _FIELDS[kind]
        end = value_at + 1 + (size if size >= 0 else 4 + _word.unpack_from(table, value_at + 1)[0])
        if name != _CC and not name.startswith(_DROPPED):
            fields.append(table[at:end])
        at = end
    return b"".join((_word.pack(sum(map(len, fields))), *fields))
