"""A loop that user code blocks repeatedly: calls with a deadline end, a little late."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from taskmq.contracts.broker import Broker, BrokerOptions
from taskmq.errors import BrokerUnavailable
from taskmq.testing.broker_suite import message
from taskmq_rabbitmq import open_broker
from taskmq_rabbitmq.amqp.channels import OpenChannel
from taskmq_rabbitmq.amqp.fast_connection import AmqpChannel
from tests.coroutines import run_by

# Such a long iteration makes every timer late.
_TURN = 0.4
_FAR_TOO_LATE = 8.0


async def _hold_up(future: "asyncio.Future[None]") -> None:
    """Run until done; block each iteration of the loop."""
    end = time.monotonic() + _FAR_TOO_LATE
    while not future.done() and time.monotonic() < end:
        time.sleep(_TURN)
        await asyncio.sleep(0)
    assert future.done()


def _out_of_reach(test: Callable[[Broker], Awaitable[None]]) -> None:
    async def main() -> None:
        broker = open_broker("amqp://guest@127.0.0.1:1/", BrokerOptions(name="test"))
        try:
            await test(broker)
        finally:
            await broker.aclose()

    asyncio.run(main())


@run_by(_out_of_reach)
async def test_a_held_up_send_ends_at_its_deadline(broker: Broker, /) -> None:
    sent = broker.publish(message("q", "x"), timeout=0.5)
    await _hold_up(sent)
    with pytest.raises(BrokerUnavailable):
        await sent


@run_by(_out_of_reach)
async def test_sends_that_expire_in_the_next_stall_get_their_own_grace(broker: Broker, /) -> None:
    first = broker.publish(message("q", "first"), timeout=0.2)
    second = broker.publish(message("q", "second"), timeout=2.5)
    for stall in (0.5, 2.5):
        time.sleep(stall)
        # One iteration for the timer, and one for its callback.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert (first.done(), second.done()) == (True, False)
    with pytest.raises(BrokerUnavailable):
        await first
    with pytest.raises(BrokerUnavailable):
        await second


@pytest.mark.real_time
async def test_a_request_to_the_broker_is_given_up() -> None:
    class Silent:
        def add_on_close_callback(self, callback: Callable[..., object]) -> None: ...

    channel = OpenChannel(cast("AmqpChannel", Silent()), asyncio.get_running_loop())
    asked: asyncio.Future[Any] = asyncio.ensure_future(channel.request(lambda done: None, timeout=0.5))
    await _hold_up(asked)
    with pytest.raises(BrokerUnavailable, match="no answer within"):
        await asked
