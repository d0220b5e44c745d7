"""Properties of messages, read from and written to bytes. Pure."""

import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from taskmq.contracts.broker import HeaderValue

_long = struct.Struct(">q")
_word = struct.Struct(">I")
_half = struct.Struct(">H")

_JSON: Final = "application/json"
_JSON_FIRST: Final = b"\x10application/json"

# Property flags, from the highest bit on, in the order of the values.
_CONTENT_TYPE: Final = 1 << 15
_CONTENT_ENCODING: Final = 1 << 14
_HEADERS: Final = 1 << 13
_DELIVERY_MODE: Final = 1 << 12
_PRIORITY: Final = 1 << 11
_CORRELATION_ID: Final = 1 << 10
_REPLY_TO: Final = 1 << 9
_EXPIRATION: Final = 1 << 8
_MESSAGE_ID: Final = 1 << 7
_TIMESTAMP: Final = 1 << 6
_TYPE: Final = 1 << 5
_APP_ID: Final = 1 << 3


class WireError(ValueError):
    """The bytes are not AMQP frames, or a value cannot be encoded in one."""


class Content(msgspec.Struct, eq=False, gc=False):
    """A message's properties as received; decoded only on use.

    Attributes:
        routing_key: the message's routing key; None if the feed did not ask for it.
    """

    _flags: int
    _raw: bytes
    routing_key: str | None = None

    @property
    def parts(self) -> tuple[int, bytes]:
        """Flags of the present properties, and their values one after the other."""
        return self._flags, self._raw

    @property
    def content_type(self) -> str | None:
        if not self._flags & _CONTENT_TYPE:
            return None
        raw = self._raw
        if raw.startswith(_JSON_FIRST):
            return _JSON
        return decode_text(raw[1 : 1 + raw[0]])

    @property
    def message_id(self) -> str | None:
        return self._short_string(_MESSAGE_ID)

    @property
    def type(self) -> str | None:
        return self._short_string(_TYPE)

    @property
    def header_table(self) -> bytes | None:
        """Bytes of the headers, with their length before them; None if there are none."""
        if not self._flags & _HEADERS:
            return None
        at = self._start_of(_HEADERS)
        size: int = _word.unpack_from(self._raw, at)[0]
        return self._raw[at : at + 4 + size]

    def _short_string(self, flag: int) -> str | None:
        if not self._flags & flag:
            return None
        at = self._start_of(flag)
        size = self._raw[at]
        return decode_text(self._raw[at + 1 : at + 1 + size])

    def _start_of(self, wanted: int) -> int:
        raw, flags = self._raw, self._flags
        at = 0
        for flag in (_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS, _DELIVERY_MODE, _PRIORITY, _CORRELATION_ID,
                     _REPLY_TO, _EXPIRATION, _MESSAGE_ID, _TIMESTAMP, _TYPE):  # fmt: skip
            if flag == wanted:
                return at
            if flags & flag:
                if flag is _HEADERS:
                    at += 4 + _word.unpack_from(raw, at)[0]
                elif flag in (_DELIVERY_MODE, _PRIORITY):
                    at += 1
                elif flag == _TIMESTAMP:
                    at += 8
                else:
                    at += 1 + raw[at]
        raise WireError(f"unknown property flag {wanted:#x}")


def properties_bytes(
    *,
    content_type: str,
    content_encoding: str | None,
    headers: Mapping[str, HeaderValue | list[str]],
    correlation_id: str,
    message_id: str,
    timestamp: int | None,
    kind: str,
    app_id: str,
    priority: int | None = None,
) -> bytes:
    """Encode the properties of a persistent message: flags and values.

    Raises:
        WireError: a value cannot be encoded.
    """
    flags = _CONTENT_TYPE | _HEADERS | _DELIVERY_MODE | _CORRELATION_ID | _MESSAGE_ID | _TYPE | _APP_ID
    parts = [b"", _short(content_type)]
    if content_encoding is not None:
        flags |= _CONTENT_ENCODING
        parts.append(_short(content_encoding))
    table = b"".join([_field(name, value) for name, value in headers.items()])
    parts += (_word.pack(len(table)), table, b"\x02")
    if priority is not None:
        flags |= _PRIORITY
        parts.append(bytes((priority,)))
    parts += (_short(correlation_id), _short(message_id))
    if timestamp is not None:
        flags |= _TIMESTAMP
        parts.append(_long.pack(timestamp))
    parts += (_short(kind), _short(app_id))
    parts[0] = _half.pack(flags)
    return b"".join(parts)


def fleeting_properties(*, content_type: str, app_id: str) -> bytes:
    """Encode the properties of a message that is not persistent."""
    flags = _CONTENT_TYPE | _DELIVERY_MODE | _APP_ID
    return b"".join((_half.pack(flags), _short(content_type), b"\x01", _short(app_id)))


def _short(text: str) -> bytes:
    data = _encode(text)
    if len(data) > 255:
        raise WireError(f"a property of {len(data)} bytes: at most 255")
    return bytes((len(data),)) + data


def _field(name: str, value: HeaderValue | list[str]) -> bytes:
    if isinstance(value, str):
        return b"%b%b" % (_short(name), _long_text(value))
    if isinstance(value, list):
        texts = b"".join(map(_long_text, value))
        return b"%bA%b%b" % (_short(name), _word.pack(len(texts)), texts)
    try:
        return b"%bl%b" % (_short(name), _long.pack(value))
    except struct.error as error:
        raise WireError(f"header {name!r}: {value} does not fit into 64 bits") from error


def _long_text(text: str) -> bytes:
    data = _encode(text)
    return b"S%b%b" % (_word.pack(len(data)), data)


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise WireError(f"text is not valid UTF-8: {error}") from error


def decode_text(data: bytes) -> str | None:
    """Decode a short string; None if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
