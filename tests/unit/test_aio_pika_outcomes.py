"""Results of an aio-pika publish as taskmq errors."""

import asyncio

import pytest
from aio_pika.exceptions import (
    AMQPConnectionError,
    ChannelClosed,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    DeliveryError,
    PublishError,
)
from aiormq.exceptions import ChannelAccessRefused, ChannelPreconditionFailed

from taskmq.contracts.broker import Outgoing
from taskmq.errors import (
    AccessDenied,
    BrokerUnavailable,
    PublishRejected,
    PublishUnknown,
    TooLarge,
    Unroutable,
)
from taskmq_aio_pika.outcome import error_for
from taskmq_rabbitmq.model.routes import route_to

_MESSAGE = Outgoing(queue="sums", body=b"", content_type="application/json", job_id="job-1", task="add")
_MISSING = "NOT_FOUND - no exchange 'taskmq' in vhost '/'"
_REFUSED = "ACCESS_REFUSED - write access to exchange 'taskmq' in vhost '/' refused for user 'u'"
_SIZE = "PRECONDITION_FAILED - message size 20000 is larger than configured max size 10000"


def _outcome(error: BaseException, *, was_closed: bool = False, is_alone: bool = True) -> BaseException | None:
    return error_for(
        error,
        _MESSAGE,
        route_to("sums"),
        hint="declare it",
        was_closed=was_closed,
        is_alone=is_alone,
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), PublishUnknown),
        (PublishError.__new__(PublishError), Unroutable),
        (DeliveryError.__new__(DeliveryError), PublishRejected),
        (ChannelNotFoundEntity(_MISSING), Unroutable),
        (ChannelAccessRefused(_REFUSED), AccessDenied),
        (ChannelPreconditionFailed(_SIZE), TooLarge),
        (ChannelPreconditionFailed("PRECONDITION_FAILED - unknown delivery tag 1"), PublishUnknown),
        (ChannelNotFoundEntity(_MISSING.replace("taskmq", "own")), PublishUnknown),
        (ChannelClosed(504, "CHANNEL_ERROR"), PublishUnknown),
        (ChannelInvalidStateError("closed"), PublishUnknown),
        (AMQPConnectionError("lost"), PublishUnknown),
        (ConnectionResetError(), PublishUnknown),
        # The errors with which aiormq ends futures of unknown outcome.
        (Exception(), PublishUnknown),
    ],
)
async def test_each_end_of_a_publish_maps_to_a_taskmq_error(error: Exception, expected: type[Exception]) -> None:
    found = _outcome(error)

    assert type(found) is expected
    assert "s3cret" not in str(found)


async def test_a_refusal_among_several_jobs_leaves_each_unknown() -> None:
    for error in (ChannelNotFoundEntity(_MISSING), ChannelAccessRefused(_REFUSED), ChannelPreconditionFailed(_SIZE)):
        assert type(_outcome(error, is_alone=False)) is PublishUnknown


async def test_a_closed_channel_has_sent_nothing() -> None:
    assert type(_outcome(ChannelInvalidStateError("closed"), was_closed=True)) is BrokerUnavailable


async def test_errors_of_the_caller_and_of_taskmq_are_unchanged() -> None:
    assert _outcome(ValueError("routing key")) is None
    assert _outcome(Unroutable("sums")) is None
    assert type(_outcome(asyncio.CancelledError())) is PublishUnknown
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    assert _outcome(asyncio.CancelledError()) is None
    task.uncancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)
