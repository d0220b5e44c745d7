"""Reasons why a consumer was lost, for people. Pure."""

from typing import Final

from taskmq_rabbitmq.amqp.channels import ChannelEnd, ChannelRefused
from taskmq_rabbitmq.model import consumer_timeout as timeouts

PRECONDITION_FAILED: Final = 406
"""AMQP's code for a refused argument, and for a delivery that was unsettled for too long."""
_CANCELS_ON_TIMEOUT: Final = (4, 3)


def explain_cancel(version: tuple[int, ...] | None, *, has_unsettled: bool) -> str:
    """Return why the broker cancelled a consumer.

    Args:
        version: of the broker; None: unknown.
        has_unsettled: whether a delivery of it was unsettled.
    """
    if has_unsettled and version is not None and version >= _CANCELS_ON_TIMEOUT:
        return (
            "the broker cancelled the consumer: the queue is gone, or a delivery was unsettled for longer than "
            f"the consumer timeout; {timeouts.remedy(version)}"
        )
    return "the broker cancelled the consumer: the queue is gone or moves to another node"


def explain_end(end: ChannelEnd, version: tuple[int, ...] | None) -> str:
    """Return why the channel of a consumer ended; "" if the connection was lost, which logs that itself."""
    if not isinstance(end, ChannelRefused):
        return ""
    if end.code == PRECONDITION_FAILED and "timed out" in end.text:
        return (
            "a delivery was unsettled for longer than the consumer timeout, and the broker has taken back all "
            f"that this queue's consumer held; {timeouts.remedy(version)} ({end})"
        )
    return f"the broker closed the channel: {end}"
