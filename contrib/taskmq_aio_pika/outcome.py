"""Outcomes of publishes over aio-pika, as taskmq's errors."""

import asyncio
from typing import Final

from aio_pika.exceptions import (
    AMQPError,
    ChannelClosed,
    ChannelInvalidStateError,
    DeliveryError,
    PublishError,
)
from aiormq.abc import DeliveredMessage
from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity

from taskmq.contracts.broker import Outgoing
from taskmq.errors import BrokerUnavailable, PublishRejected, PublishUnknown, SendError, TooLarge, Unroutable
from taskmq_rabbitmq.model.access_refused import access_error, exceeded_size, refused_exchange
from taskmq_rabbitmq.model.routes import Route

_LOST: Final = (AMQPError, ConnectionError, RuntimeError)


def judge(answer: object, message: Outgoing, hint: str) -> None:
    """Raise if the broker returned the message: by default, channels report that instead of raising."""
    if isinstance(answer, DeliveredMessage):
        raise Unroutable(message.queue, hint)


def error_for(
    error: BaseException,
    message: Outgoing,
    route: Route,
    *,
    hint: str,
    was_closed: bool,
    is_alone: bool,
) -> SendError | None:
    """Return taskmq's error for an error of aio-pika; None if the error is the caller's own.

    Args:
        was_closed: whether the channel was already closed.
        is_alone: whether no other job was in flight on the channel, so that the refusal concerns this one.
    """
    job = f"job {message.job_id}"
    match error:
        case SendError():
            return None
        case TimeoutError():
            return PublishUnknown(f"{job} was not confirmed in time: it may have been sent")
        case PublishError():
            return Unroutable(message.queue, hint)
        case DeliveryError():
            return PublishRejected(f"nothing was sent: the broker refused {job}; its queue may be full")
        case ChannelInvalidStateError() | RuntimeError() if was_closed:
            return BrokerUnavailable(f"the channel is closed; {job} was not sent: open another one")
        case ChannelClosed() if is_alone and (refused := _refusal(error, message, route, hint)) is not None:
            return refused
        case _:
            pass
    # Closing a channel cancels pending publishes, although no caller asked for that.
    task = asyncio.current_task()
    is_made_up = isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling()
    if is_made_up or isinstance(error, _LOST) or type(error) is Exception:
        return PublishUnknown(f"the channel was lost before {job} was confirmed: it may have been sent")
    return None


def _refusal(error: ChannelClosed, message: Outgoing, route: Route, hint: str) -> SendError | None:
    """Return the error that the broker's refusal means for this message; None if it concerns something else."""
    text = " ".join(map(str, error.args))
    if (size := exceeded_size(text)) is not None:
        return TooLarge(*size, f"the message of job {message.job_id}")
    if refused_exchange(text) != route.exchange:
        return None
    if isinstance(error, ChannelNotFoundEntity):
        return Unroutable(message.queue, hint)
    return access_error(text) if isinstance(error, ChannelAccessRefused) else None
