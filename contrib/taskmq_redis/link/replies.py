"""What the server answers, as what it is to be: here a server that is none, or a key of others, is found out."""

from typing import TypeVar, cast

import msgspec

from taskmq.errors import StateUnavailable
from taskmq_redis.link.call import Reply

__all__ = ["decoded", "flag", "integer", "text", "texts", "texts_or_none"]

T = TypeVar("T")


def integer(reply: Reply) -> int:
    if not isinstance(reply, int):
        raise _nonsense("a number")
    return reply


def flag(reply: Reply) -> bool:
    """A yes or no, as scripts give it."""
    return integer(reply) == 1


def text(reply: Reply) -> str:
    if not isinstance(reply, bytes):
        raise _nonsense("a string")
    return reply.decode(errors="replace")


def texts(reply: Reply) -> list[bytes]:
    found = texts_or_none(reply)
    if None in found:
        raise _nonsense("strings")
    return cast("list[bytes]", found)


def texts_or_none(reply: Reply) -> list[bytes | None]:
    """Strings, some of which may not be there."""
    if not isinstance(reply, list) or not all(one is None or isinstance(one, bytes) for one in reply):
        raise _nonsense("strings")
    return cast("list[bytes | None]", reply)


def decoded(reply: Reply, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
    """What a string holds; None where there is none.

    Raises:
        StateUnavailable: the key holds something else.
    """
    if reply is None:
        return None
    try:
        return decoder.decode(cast("bytes", reply))
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise _nonsense("a record of taskmq") from error


def _nonsense(expected: str) -> StateUnavailable:
    return StateUnavailable(
        f"the state's answer is not {expected}: is it a Redis, and its keys taskmq's own (?prefix=)?",
        is_certain=False,
    )
