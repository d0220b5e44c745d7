"""A command on its way to the server and back."""

import asyncio
from collections.abc import Sequence

import msgspec
from redis.exceptions import ResponseError

Word = bytes | str | int
# An answer of the server, as redis-py returns it; an error of the server is a reply as well.
Reply = bytes | str | int | list["Reply"] | None


def pack(words: Sequence[Word]) -> bytes:
    """Encode a command in Redis's protocol."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        said = word if isinstance(word, bytes) else word.encode() if isinstance(word, str) else b"%d" % word
        parts.append(b"$%d\r\n%b\r\n" % (len(said), said))
    return b"".join(parts)


def _new_future() -> "asyncio.Future[Reply | ResponseError]":
    return asyncio.get_running_loop().create_future()


class Call(msgspec.Struct, eq=False):
    """A command with a caller that waits.

    Attributes:
        command: in Redis's protocol.
        can_repeat: whether the command is idempotent, so that it may be sent again if its reply was lost.
        is_asking: whether it goes to a node that is about to take over the slot.
        was_sent: whether the server may have executed it.
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
