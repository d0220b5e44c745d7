"""Identification of the message over which the broker closed a channel, and its error. Pure.

RabbitMQ processes a channel in order and closes it at the first message that it refuses: those before it are
accepted, whether confirmed yet or not, those after it are dropped. Its text names an exchange or a size, never a
message.
"""

from collections.abc import Sequence
from typing import Final

from taskmq.errors import PublishRejected, PublishUnknown, SendError, TooLarge
from taskmq_rabbitmq.model.access_refused import ACCESS_REFUSED, access_error, exceeded_size, refused_exchange
from taskmq_rabbitmq.publish.pending import Pending

_CHANCES: Final = 3


def find_refused(unconfirmed: Sequence[Pending], text: str) -> Pending | None:
    """Return the refused message, of those in the order of publishing; None if it cannot be identified."""
    if len(unconfirmed) == 1:
        return unconfirmed[0]
    if (exceeded := exceeded_size(text)) is not None:
        return next((pending for pending in unconfirmed if pending.size == exceeded[0]), None)
    if (exchange := refused_exchange(text)) is not None:
        return next((pending for pending in unconfirmed if pending.exchange == exchange), None)
    return None


def error_for(refused: Pending, code: int, text: str) -> SendError | None:
    """Return the error of the refused message; None if it is worth another try."""
    if (exceeded := exceeded_size(text)) is not None:
        return TooLarge(*exceeded, f"the message of job {refused.message.job_id}")
    if code == ACCESS_REFUSED:
        error: SendError = access_error(text)
    elif refused.refusals >= _CHANCES:
        error = PublishRejected(
            f"nothing was sent: the broker closed the channel {refused.refusals} times over it: {code} {text}"
        )
    else:
        return None
    return maybe_sent(str(error)) if refused.uncertain else error


def maybe_sent(why: str) -> PublishUnknown:
    """Return the error of a message that was in transit when a connection was lost, and is refused now."""
    return PublishUnknown(f"it was not confirmed before the connection was lost, and now {why}")
