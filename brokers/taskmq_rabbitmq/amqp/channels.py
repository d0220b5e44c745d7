"""Channels with requests that can be awaited."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from taskmq.errors import BrokerUnavailable
from taskmq_rabbitmq.amqp.fast_connection import AmqpChannel
from taskmq_rabbitmq.amqp.pika_types import AMQPError, ChannelClosedByBroker, PikaChannel

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import Done, Method, MethodFrame

HELD_UP_SECONDS: Final = 0.1
"""Delay of a timer that shows that the loop was blocked: answers are unread, and writes are incomplete."""
GRACE_SECONDS: Final = 0.3
"""Seconds that expired requests still wait for answers that are being read now."""

_ANSWER_SECONDS: Final = 30.0
_T = TypeVar("_T")


class ChannelRefused(Exception):
    """The broker refused a request and closed the channel for it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


ChannelEnd = ChannelRefused | BrokerUnavailable


class OpenChannel:
    """A channel, from before channel.open until its end.

    Attributes:
        raw: pika's channel.
        ended: the reason of its end, once it has ended.
    """

    __slots__ = ("_answered", "_answers", "_asked", "_loop", "_turn", "ended", "raw")

    def __init__(self, raw: AmqpChannel, loop: asyncio.AbstractEventLoop) -> None:
        self.raw = raw
        self.ended: asyncio.Future[ChannelEnd] = loop.create_future()
        self._loop = loop
        self._answers: set[asyncio.Future[Any]] = set()
        # For `synchronise`: number of calls, and the last of them that an answer covers.
        self._asked = self._answered = 0
        self._turn = asyncio.Lock()
        raw.add_on_close_callback(self._on_close)

    async def request(self, send: "Callable[[Done], object]", *, timeout: float = _ANSWER_SECONDS) -> "Method":
        """Send a request and return the broker's answer; `send` gets the callback to pass to pika.

        Raises:
            ChannelRefused: the broker closed the channel instead.
            BrokerUnavailable: the connection was lost, or no answer arrived in time.
        """
        answer: asyncio.Future[Method] = self._loop.create_future()

        def on_answer(frame: "MethodFrame") -> None:
            if not answer.done():
                answer.set_result(frame.method)

        self.send(lambda: send(on_answer))
        return await self.outcome(answer, timeout=timeout)

    async def synchronise(self) -> None:
        """Return once the broker has processed all that was sent on this channel before.

        A channel processes its frames in order, so the answer to any request proves that; callers share one.

        Raises:
            ChannelRefused: the broker closed the channel instead.
            BrokerUnavailable: the connection was lost, or no answer arrived in time.
        """
        self._asked += 1
        number = self._asked
        async with self._turn:
            if self._answered >= number:
                return
            covered = self._asked
            answer: asyncio.Future[None] = self._loop.create_future()

            def on_answer(_is_active: bool) -> None:  # noqa: FBT001 - a positional callback of pika
                if not answer.done():
                    answer.set_result(None)

            # The one request that changes nothing: the flow is on already.
            self.send(lambda: self.raw.flow(active=True, callback=on_answer))
            await self.outcome(answer, timeout=_ANSWER_SECONDS)
            self._answered = covered

    def send(self, send: Callable[[], object]) -> None:
        """Call `send`, and translate pika's errors."""
        if self.ended.done():
            raise self.ended.result()
        try:
            send()
        except AMQPError as error:
            raise BrokerUnavailable(f"the channel to the broker is closed: {error}") from error

    async def outcome(self, answer: asyncio.Future[_T], *, timeout: float) -> _T:
        """Return the result of `answer`, or raise the reason why the channel ended before."""
        if self.ended.done():
            raise self.ended.result()
        self._answers.add(answer)
        end = self._loop.time() + timeout
        timer: asyncio.TimerHandle

        def give_up(*, has_grace: bool) -> None:
            nonlocal timer
            if answer.done():
                return
            if self._loop.time() - end > HELD_UP_SECONDS and not has_grace:
                timer = self._loop.call_later(GRACE_SECONDS, partial(give_up, has_grace=True))
            else:
                answer.set_exception(BrokerUnavailable(f"the broker gave no answer within {timeout:g} s"))

        timer = self._loop.call_at(end, partial(give_up, has_grace=False))
        try:
            return await answer
        finally:
            timer.cancel()
            self._answers.discard(answer)

    async def end(self) -> ChannelEnd:
        """Return the reason of the channel's end, once it has ended."""
        await asyncio.wait({self.ended})
        return self.ended.result()

    def close(self) -> None:
        """Start to close the channel; frames sent before still reach the broker. May be called twice."""
        if not (self.raw.is_closed or self.raw.is_closing):
            self.raw.close()

    def _on_close(self, _channel: PikaChannel, reason: Exception) -> None:
        end: ChannelEnd = (
            ChannelRefused(reason.reply_code, reason.reply_text)
            if isinstance(reason, ChannelClosedByBroker)
            else BrokerUnavailable(f"the channel to the broker is closed: {reason}")
        )
        self.raw.forget()
        if not self.ended.done():
            self.ended.set_result(end)
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(end)
