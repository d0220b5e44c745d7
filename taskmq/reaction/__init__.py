"""What tasks can react to, and when what has happened is enough. Pure: happenings in, firings out.

    condition  one thing that may happen: a job ends, a file arrives, a message comes, a time comes
    expression conditions, joined by `all_of` and `any_of`
    happening  it has: what the task is given
    standing   what has come so far of one expression, and what follows from it

The names below load on first use: an app without reactions pays for none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskmq.reaction.arrivals import Arrivals, Sighting
    from taskmq.reaction.conditions import (
        AllOf,
        AnyOf,
        Condition,
        Expression,
        FileArrives,
        JobEnds,
        MessageComes,
        Part,
        TimeComes,
        all_of,
        any_of,
        file,
        job,
        message,
    )
    from taskmq.reaction.happenings import FileArrived, Happening, JobEnded, MessageArrived, TimeCame

__all__ = [
    "AllOf",
    "AnyOf",
    "Arrivals",
    "Condition",
    "Expression",
    "FileArrived",
    "FileArrives",
    "Happening",
    "JobEnded",
    "JobEnds",
    "MessageArrived",
    "MessageComes",
    "Part",
    "Sighting",
    "TimeCame",
    "TimeComes",
    "all_of",
    "any_of",
    "file",
    "job",
    "message",
]

_HOMES = {
    "Arrivals": "arrivals",
    "FileArrived": "happenings",
    "Happening": "happenings",
    "JobEnded": "happenings",
    "MessageArrived": "happenings",
    "Sighting": "arrivals",
    "TimeCame": "happenings",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'conditions')}"), name)
    globals()[name] = value
    return value
