"""Conversion of replies to the expected types, which detects servers and keys that are not taskmq's."""

from typing import TypeVar, cast

import msgspec

from taskmq.errors import StateUnavailable
from taskmq_redis.link.call import Reply

T = TypeVar("T")


def integer(reply: Reply) -> int:
    if not isinstance(reply, int):
        raise _unexpected_reply("a number")
    return reply


def flag(reply: Reply) -> bool:
    """Return a boolean reply of a script."""
    return integer(reply) == 1


def text(reply: Reply) -> str:
    if not isinstance(reply, bytes):
        raise _unexpected_reply("a string")
    return reply.decode(errors="replace")


def texts(reply: Reply) -> list[bytes]:
    found = texts_or_none(reply)
    if None in found:
        raise _unexpected_reply("strings")
    return cast("list[bytes]", found)


def texts_or_none(reply: Reply) -> list[bytes | None]:
    """Return strings, some of which may be missing."""
    if not isinstance(reply, list) or not all(one is None or isinstance(one, bytes) for one in reply):
        raise _unexpected_reply("strings")
    return cast("list[bytes | None]", reply)


def decode(reply: Reply, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
    """Decode a string reply; None if there is none.

    Raises:
        StateUnavailable: the key has other content.
    """
    if reply is None:
        return None
    try:
        return decoder.decode(cast("bytes", reply))
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise _unexpected_reply("a record of taskmq") from error


def _unexpected_reply(expected: str) -> StateUnavailable:
    return StateUnavailable(
        f"the state's answer is not {expected}: is the server Redis, and are its keys taskmq's (?prefix=)?",
        is_certain=False,
    )
