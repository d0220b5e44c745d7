"""Names and values of what taskmq keeps at a broker. Pure.

A queue `Q` that people name stands for four physical ones: the three priority classes `Q.p.high`, `Q` and
`Q.p.low`, and `Q.dlq`, where dead jobs go. Two queues are shared by all: `taskmq.parking` for messages that no
worker can run, and `taskmq.unroutable` for those whose queue has gone while they waited.
"""

from dataclasses import dataclass
from typing import Final, Literal

from taskmq.errors import InvalidOption

__all__ = [
    "CLASSES",
    "DEFAULT_QUEUE",
    "PARKING",
    "UNROUTABLE",
    "PriorityClass",
    "QueueKind",
    "WorkQueue",
    "check_queue_name",
    "class_of",
    "class_queue",
    "dead_letter_queue",
    "logical_queue",
]

DEFAULT_QUEUE: Final = "default"
PARKING: Final = "taskmq.parking"
UNROUTABLE: Final = "taskmq.unroutable"

PriorityClass = Literal["high", "default", "low"]
CLASSES: Final[tuple[PriorityClass, ...]] = ("high", "default", "low")
QueueKind = Literal["quorum", "classic"]

_SUFFIX: Final[dict[PriorityClass, str]] = {"high": ".p.high", "default": "", "low": ".p.low"}
_DEAD_LETTER_SUFFIX: Final = ".dlq"
# AMQP's short strings hold 255 bytes; a delayed message's routing key spends 56 of them on the delay, and
# the longest suffix 7.
_NAME_LIMIT: Final = 192


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """A queue as people name it.

    Args:
        name: up to 192 bytes.
        kind: `quorum` survives the loss of a minority of nodes; `classic` is faster to enter and weaker.
            Brokers that are no RabbitMQ keep no difference.
    """

    name: str
    kind: QueueKind = "quorum"

    @property
    def physical(self) -> tuple[str, ...]:
        """The queues that a worker consumes, the highest class first."""
        return tuple(self.name + _SUFFIX[name] for name in CLASSES)


def check_queue_name(name: str) -> str:
    """`name` itself.

    Raises:
        InvalidOption: a queue cannot be called that.
    """
    reserved = name.startswith(("amq.", "taskmq.")) or name.endswith((*filter(None, _SUFFIX.values()), ".dlq"))
    # As a word of a binding key these two stand for other queues' names: their delayed messages would come here.
    reserved = reserved or not {"*", "#"}.isdisjoint(name.split("."))
    # Printable comes before the length: a lone surrogate has no bytes.
    if not name.isprintable() or not 0 < len(name.encode()) <= _NAME_LIMIT or reserved or name != name.strip():
        raise InvalidOption(
            f"queue name {name!r}: 1 to {_NAME_LIMIT} printable bytes, not starting with 'amq.' or 'taskmq.', "
            "not ending with '.dlq', '.p.high' or '.p.low', and without '*' or '#' between dots"
        )
    return name


def class_of(priority: int | None) -> PriorityClass:
    """The class of a numeric priority: 7-9 high, 3-6 and none default, 0-2 low.

    Raises:
        InvalidOption: it is not a number from 0 to 9.
    """
    if priority is None:
        return "default"
    if not 0 <= priority <= 9:
        raise InvalidOption(f"priority={priority!r}: a number from 0 (lowest) to 9 (highest)")
    if priority >= 7:
        return "high"
    return "default" if priority >= 3 else "low"


def class_queue(queue: str, priority: int | None) -> str:
    """The physical queue of `queue` for a numeric priority."""
    return queue + _SUFFIX[class_of(priority)]


def logical_queue(physical: str) -> str:
    """The queue that people name, for any of its physical ones."""
    for suffix in (*_SUFFIX.values(), _DEAD_LETTER_SUFFIX):
        if suffix and physical.endswith(suffix):
            return physical.removesuffix(suffix)
    return physical


def dead_letter_queue(queue: str) -> str:
    """Where dead jobs of `queue` go; `queue` may be physical."""
    return logical_queue(queue) + _DEAD_LETTER_SUFFIX
