"""Reactions: tasks that are called when an event occurs.

    condition   a kind of event: a job or a run ends, a file arrives, a message arrives, a schedule is due
    expression  conditions, joined by `all_of`, `any_of` and `at_least`
    event       an occurrence of a condition, passed to the task
    pending     the events of an expression since its last call, and the calls to send

`model` decides, and is pure. `reactions` is `app.reactions`; `deliver` turns an event into a job:

    a worker, as a job ends --+
    a beat: files, messages --+--> deliver -- one condition is enough ---------> the job, published
                                                    +-- several, time or debounce --> pending, in the state --> a beat

A process keeps the cause of an event (the delivery of the job or message, the claim on the file) until `deliver` has
returned, so each event is delivered at least once. The job's id is derived from the event, so workers run a repeated
event only once.

The names below load on first use, so an app without reactions does not pay for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskmq.reactions.deliver import CallFailed, Cause, ReactionDelivery
    from taskmq.reactions.model.arrivals import Arrivals, Sighting
    from taskmq.reactions.model.conditions import (
        Condition,
        FileArrives,
        JobEnds,
        MessageComes,
        QueueMessageComes,
        TimeComes,
        WorkflowRunEnds,
        amqp,
        file,
        job,
        message,
        run,
    )
    from taskmq.reactions.model.events import FileArrived, JobEnded, MessageArrived, ReactionEvent, RunEnded, TimeCame
    from taskmq.reactions.model.expressions import AllOf, AnyOf, AtLeast, Expression, Part, all_of, any_of, at_least
    from taskmq.reactions.pending_calls import PendingCalls
    from taskmq.reactions.pending_store import change_pending, read_pending
    from taskmq.reactions.reactions import Reaction, Reactions, ReactionStatus
    from taskmq.reactions.stored_reactions import ReactionRule, StoredReactions

__all__ = [
    "AllOf",
    "AnyOf",
    "Arrivals",
    "AtLeast",
    "CallFailed",
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
    "PendingCalls",
    "QueueMessageComes",
    "Reaction",
    "ReactionDelivery",
    "ReactionEvent",
    "ReactionRule",
    "ReactionStatus",
    "Reactions",
    "RunEnded",
    "Sighting",
    "StoredReactions",
    "TimeCame",
    "TimeComes",
    "WorkflowRunEnds",
    "all_of",
    "amqp",
    "any_of",
    "at_least",
    "change_pending",
    "file",
    "job",
    "message",
    "read_pending",
    "run",
]

_NAMES_BY_MODULE = {
    "model.arrivals": ("Arrivals", "Sighting"),
    "deliver": ("Cause", "ReactionDelivery", "CallFailed"),
    "model.events": ("FileArrived", "JobEnded", "MessageArrived", "ReactionEvent", "RunEnded", "TimeCame"),
    "model.expressions": ("AllOf", "AnyOf", "AtLeast", "Expression", "Part", "all_of", "any_of", "at_least"),
    "pending_calls": ("PendingCalls",),
    "pending_store": ("change_pending", "read_pending"),
    "reactions": ("Reaction", "ReactionStatus", "Reactions"),
    "stored_reactions": ("ReactionRule", "StoredReactions"),
}
_MODULE_OF = {name: home for home, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF.get(name, 'model.conditions')}"), name)
    globals()[name] = value
    return value
