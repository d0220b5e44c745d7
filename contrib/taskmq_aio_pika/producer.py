"""A producer over a channel or transaction of the caller."""

import asyncio
from functools import partial
from typing import Final, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

from aio_pika import DeliveryMode, Message
from aio_pika.abc import AbstractChannel, AbstractTransaction, TransactionState
from aio_pika.exceptions import ChannelNotFoundEntity
from aio_pika.transaction import Transaction
from aiormq.abc import AbstractChannel as Underlay

from taskmq.contracts.broker import Outgoing
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import InvalidOption, Unroutable
from taskmq.jobs.handle import Job
from taskmq.model.envelope import JSON
from taskmq.model.headers import ETA
from taskmq.model.topology import WorkQueue
from taskmq.model.units import instant_text
from taskmq.tasks.call import Call
from taskmq_aio_pika.outcome import error_for, judge
from taskmq_rabbitmq.model import delay_ladder
from taskmq_rabbitmq.model.routes import Route, route_to

P = ParamSpec("P")
R = TypeVar("R")

_HINT: Final = "start a worker for it, or run `taskmq topology apply` once; send() declares nothing on your channel"
_clock = SystemClock()
# aiormq finds returned messages by message id, and a channel tracks each id only once.
_in_flight: "WeakKeyDictionary[AbstractChannel, dict[str, asyncio.Future[None]]]" = WeakKeyDictionary()
_checked: "WeakKeyDictionary[AbstractTransaction, set[str]]" = WeakKeyDictionary()


async def send(
    channel: AbstractChannel | AbstractTransaction, call: Call[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> Job[R]:
    """Send one call over the caller's channel; delays, priorities and middleware are those of `call.asend(...)`.

    Over a channel it returns once RabbitMQ has confirmed the message. In a transaction it returns once the message is
    written; the message counts when the transaction commits, and disappears if it rolls back. The channel remains the
    caller's: it is neither opened nor closed here, and nothing is sent a second time.

    Args:
        channel: a channel with publisher confirms, aio-pika's default, or a transaction that has begun.
        call: a task, or the result of its `options(...)`.

    Raises:
        InvalidArguments, EncodeError: the arguments are invalid; nothing was sent.
        InvalidOption: the channel has no confirms, the transaction has not begun or is over, or the call goes to the
            job store.
        Unroutable: the queue does not exist; for a transaction, a separate channel checks that.
        AccessDenied, TooLarge, PublishRejected: the broker refused the message; the first two close the channel.
        BrokerUnavailable: the channel is closed; nothing was sent.
        PublishUnknown: no confirm within the app's send timeout, or the channel was lost before: the message may have
            been sent. If the task is idempotent, send it again with the same `job_id`.
    """
    publish = (
        partial(_publish_in, channel) if isinstance(channel, AbstractTransaction) else partial(_publish, channel)
    )
    sending = call.sending(*args, **kwargs)
    await call.producer.send_by(publish, sending)
    return call.handle(sending.envelope.id)


async def _publish(channel: AbstractChannel, _: WorkQueue, message: Outgoing, timeout: float) -> None:
    if not getattr(channel, "publisher_confirms", True):
        raise InvalidOption(
            "the channel has no publisher confirms, so lost jobs would go unnoticed: open it with "
            "publisher_confirms=True, or send in `async with channel.transaction() as transaction`"
        )
    route, content = _wire_form(message)
    flights = _in_flight.setdefault(channel, {})
    flight: asyncio.Future[None] | None = None
    is_closed = channel.is_closed
    try:
        # Covers everything: a robust channel waits for its connection without a limit.
        async with asyncio.timeout(timeout):
            while (other := flights.get(message.job_id)) is not None:
                await asyncio.wait({other})
            flight = flights[message.job_id] = asyncio.get_running_loop().create_future()
            exchange = await channel.get_exchange(route.exchange, ensure=False)
            answer = await exchange.publish(content, route.key, mandatory=True)
            judge(answer, message, _HINT)
    except BaseException as error:
        mended = error_for(
            error,
            message,
            route,
            hint=_HINT,
            was_closed=is_closed,
            is_alone=len(flights) == 1,
        )
        if mended is None:
            raise
        raise mended from error
    finally:
        if flight is not None:
            del flights[message.job_id]
            flight.set_result(None)


async def _publish_in(transaction: AbstractTransaction, _: WorkQueue, message: Outgoing, timeout: float) -> None:
    if transaction.state is not TransactionState.STARTED:
        raise InvalidOption(
            f"the transaction is {transaction.state.value}: send between its begin and its end, in "
            "`async with channel.transaction() as transaction`"
        )
    route, content = _wire_form(message)
    # The abstract class does not declare it.
    channel = cast("Transaction", transaction).channel
    is_closed = channel.is_closed
    try:
        async with asyncio.timeout(timeout):
            await _check_route(channel, _checked.setdefault(transaction, set()), route, message.queue)
            exchange = await channel.get_exchange(route.exchange, ensure=False)
            await exchange.publish(content, route.key, mandatory=True)
    except BaseException as error:
        mended = error_for(error, message, route, hint=_HINT, was_closed=is_closed, is_alone=False)
        if mended is None:
            raise
        raise mended from error


async def _check_route(channel: AbstractChannel, known: set[str], route: Route, queue: str) -> None:
    """Check that the queue is reachable: aiormq does not report messages returned at a commit."""
    underlay = await channel.get_underlay_channel()
    for kind, name in (("exchange", route.exchange), ("queue", queue)):
        if f"{kind} {name}" in known:
            continue
        probe: Underlay = await underlay.connection.channel(publisher_confirms=False)
        try:
            if kind == "queue":
                await probe.queue_declare(name, passive=True)
            else:
                await probe.exchange_declare(name, passive=True)
        except ChannelNotFoundEntity:
            raise Unroutable(queue, _HINT) from None
        finally:
            if not probe.is_closed:
                await probe.close()
        known.add(f"{kind} {name}")


def _wire_form(message: Outgoing) -> tuple[Route, Message]:
    """Return the exchange and key, and the properties that `taskmq_rabbitmq` gives to the same message."""
    headers: dict[str, object] = dict(message.headers)
    delay_ms = 0 if message.due is None else message.due - _clock.now_ms()
    route = route_to(message.queue)
    if delay_ms > 0:
        assert message.due is not None
        headers[ETA] = instant_text(message.due)
        headers[delay_ladder.WAYS] = delay_ladder.ways(delay_ms)
        route = Route(delay_ladder.ENTER, message.queue)
    content = Message(
        message.body,
        headers=headers,  # type: ignore[arg-type]
        content_type=message.content_type,
        content_encoding="utf-8" if message.content_type == JSON else None,
        delivery_mode=DeliveryMode.PERSISTENT,
        correlation_id=_short(message.root or message.job_id),
        message_id=_short(message.job_id),
        timestamp=None if message.enqueued is None else message.enqueued // 1000,
        type=_short(message.task),
        app_id="taskmq",
    )
    # The constructor would turn None into 0. On the delay ladder, a priority would let messages overtake others that
    # are due at another time.
    content.priority = message.priority if delay_ms <= 0 else None
    return route, content


def _short(text: str) -> str:
    """Cut a text to the length of AMQP's short strings; the body has the full text."""
    return text.encode()[:255].decode(errors="ignore")
