"""Reactions: tasks that are called when something happens.

    condition   one thing that may happen: a job ends, a file arrives, a message comes, a time comes
    expression  conditions, joined by `all_of` and `any_of`
    event       it has happened: what the task is given
    pending     what has come so far of one expression, and what follows from it

`model` decides, and is pure. `registry` is `app.reactions`; `deliver` turns an event into a job:

    a worker, as a job ends --+
    a beat: files, messages --+--> deliver -- one condition is enough ---------> the job, published
                                                    +-- several, time or debounce --> pending, in the state --> a beat

The process that sees an event keeps hold of its cause (the delivery of the job or message, the claim of the file)
until `deliver` has returned, so each event is delivered at least once. The job's id is derived from the event, so
workers run one of several deliveries.

The names below load on first use: an app without reactions pays for none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskmq.reactions.deliver import Cause, ReactionDelivery, Refused
    from taskmq.reactions.model.arrivals import Arrivals, Sighting
    from taskmq.reactions.model.conditions import (
        AllOf,
        AnyOf,
        Condition,
        Expression,
        FileArrives,
        JobEnds,
        MessageComes,
        Part,
        QueueMessageComes,
        TimeComes,
        all_of,
        amqp,
        any_of,
        file,
        job,
        message,
    )
    from taskmq.reactions.model.events import FileArrived, JobEnded, MessageArrived, ReactionEvent, TimeCame
    from taskmq.reactions.pending_store import change_pending, read_pending
    from taskmq.reactions.reactions import Reaction, Reactions, ReactionStatus

__all__ = [
    "AllOf",
    "AnyOf",
    "Arrivals",
    "Cause",
    "Condition",
    "Expression",
    "FileArrived",
    "FileArrives",
    "JobEnded",
    "JobEnds",
    "MessageArrived",
    "MessageComes",
    "Part",
    "QueueMessageComes",
    "Reaction",
    "ReactionDelivery",
    "ReactionEvent",
    "ReactionStatus",
    "Reactions",
    "Refused",
    "Sighting",
    "TimeCame",
    "TimeComes",
    "all_of",
    "amqp",
    "any_of",
    "change_pending",
    "file",
    "job",
    "message",
    "read_pending",
]

_HOMES = {
    "model.arrivals": ("Arrivals", "Sighting"),
    "deliver": ("Cause", "ReactionDelivery", "Refused"),
    "model.events": ("FileArrived", "JobEnded", "MessageArrived", "ReactionEvent", "TimeCame"),
    "pending_store": ("change_pending", "read_pending"),
    "reactions": ("Reaction", "ReactionStatus", "Reactions"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF.get(name, 'model.conditions')}"), name)
    globals()[name] = value
    return value
