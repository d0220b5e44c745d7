"""One command on its way to the server and back."""

import asyncio

import msgspec
from redis.exceptions import ResponseError

__all__ = ["Call", "Reply", "Word"]

Word = bytes | str | int
# What the server answers, as redis-py gives it; an error that it answers with is a reply as well.
Reply = bytes | str | int | list["Reply"] | None


def _new_future() -> "asyncio.Future[Reply | ResponseError]":
    return asyncio.get_running_loop().create_future()


class Call(msgspec.Struct, eq=False):
    """A command that somebody awaits.

    Attributes:
        can_repeat: doing it twice is the same as once, so it is sent again when its reply was lost.
        is_asking: goes to a node that is about to take the slot over.
        was_sent: the server may have done it.
    """

    words: tuple[Word, ...]
    can_repeat: bool
    is_asking: bool = False
    was_sent: bool = False
    repeats: int = 0
    future: "asyncio.Future[Reply | ResponseError]" = msgspec.field(default_factory=_new_future)

    @property
    def size(self) -> int:
        return sum(len(word) for word in self.words if not isinstance(word, int))

    def answer(self, reply: Reply | ResponseError) -> None:
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
