"""Commands to workers, and collection of their answers."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from taskmq.contracts.broker import Broker
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import BrokerUnavailable, MalformedMessage
from taskmq.events.stream import as_broadcasting
from taskmq.model.commands import (
    EVERY_WORKER,
    Command,
    CommandAnswer,
    answer_topic,
    command_topic,
    decode_answer,
    encode_command,
)
from taskmq.model.units import Duration, parse_seconds

_REFUSED_SECONDS: Final = 2.0
_SLOW_SECONDS: Final = 8.0


async def reach_broker(broker: Broker) -> None:
    """Return once the broker answers, for a person who waits.

    Raises:
        BrokerUnavailable: every attempt of two seconds failed, or the first one had no answer within ten.
    """
    try:
        await broker.connect(timeout=_REFUSED_SECONDS)
    except BrokerUnavailable as error:
        if not error.is_unanswered:
            raise
        await broker.connect(timeout=_SLOW_SECONDS)


async def command_workers(broker: Broker, command: Command, *, within: Duration = 1.0) -> Sequence[CommandAnswer]:
    """Send a command and return the answers within this time, one for each process, by name.

    The number of workers is unknown, so it takes all of that time, unless the command names workers and each of them
    has answered.

    Args:
        command: its `id` and `reply` are set here.

    Raises:
        BrokerUnavailable: the broker could not be reached, or this user may not send commands.
        TopologyMismatch: a needed object does not exist at the broker, and this user may not declare it.
        UnsupportedFeature: the broker has no broadcasts.
    """
    seconds = parse_seconds(within, what="within")
    broadcasting = as_broadcasting(broker)
    command_id = secrets.token_hex(8)
    topic = answer_topic(command_id)
    command = msgspec.structs.replace(command, id=command_id, reply=topic)
    answers: dict[tuple[str, str, int], CommandAnswer] = {}
    expected = None if any(name.startswith((EVERY_WORKER, "@")) for name in command.to) else {*command.to}
    complete = asyncio.Event()
    clock = SystemClock()
    asked = clock.now_ms()

    def receive(_topic: str, body: bytes) -> None:
        try:
            answer = decode_answer(body)
        except MalformedMessage:
            # Any client that may announce may have written it.
            return
        if answer.id == command_id:
            sent = answer.status.at
            offset = (sent - (asked + clock.now_ms()) / 2) / 1000 if sent else None
            answer = msgspec.structs.replace(answer, clock_offset=offset)
            answers[answer.worker, answer.status.host, answer.status.pid] = answer
            if expected is not None and expected <= {name for name, _, _ in answers}:
                complete.set()

    # So that the whole time is for the workers.
    await reach_broker(broker)
    listening = await broadcasting.listen([topic], receive)
    try:
        asked = clock.now_ms()
        if not broadcasting.announce(command_topic(command.name), encode_command(command)):
            raise BrokerUnavailable(f"the broker {broker.address} cannot send commands at the moment")
        try:
            async with asyncio.timeout(seconds):
                await complete.wait()
        except TimeoutError:
            # A worker without an answer does not exist, or is blocked.
            pass
    finally:
        await listening.stop()
    return [answers[key] for key in sorted(answers)]
