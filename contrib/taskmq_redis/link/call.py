"""One command on its way to the server and back."""

import asyncio
from collections.abc import Sequence

import msgspec
from redis.exceptions import ResponseError

__all__ = ["Call", "Reply", "Word", "packed"]

Word = bytes | str | int
# What the server answers, as redis-py gives it; an error that it answers with is a reply as well.
Reply = bytes | str | int | list["Reply"] | None


def packed(words: Sequence[Word]) -> bytes:
    """A command as Redis reads it."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        said = word if isinstance(word, bytes) else word.encode() if isinstance(word, str) else b"%d" % word
        parts.append(b"$%d\r\n%b\r\n" % (len(said), said))
    return b"".join(parts)


def _new_future() -> "asyncio.Future[Reply | ResponseError]":
    return asyncio.get_running_loop().create_future()


class Call(msgspec.Struct, eq=False):
    """A command with a waiter.

    Attributes:
        command: as Redis reads it.
        can_repeat: doing it twice is the same as once, so it is sent again when its reply was lost.
        is_asking: goes to a node that is about to take the slot over.
        was_sent: the server may have done it.
    """

    command: bytes
    can_repeat: bool
    is_asking: bool = False
    was_sent: bool = False
    repeats: int = 0
    future: "asyncio.Future[Reply | ResponseError]" = msgspec.field(default_factory=_new_future)

    def answer(self, reply: Reply | ResponseError) -> None:
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
