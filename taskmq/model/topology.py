"""Names and settings of what taskmq keeps at a broker. Pure.

A logical queue `Q` consists of several physical ones: those that a worker consumes, and `Q.dlq` for dead jobs. Its
`WorkQueue` defines those that a worker consumes: the three priority classes `Q.p.high`, `Q` and `Q.p.low`; or `Q`
alone with the broker's own priorities; or the shards `Q.s00`, `Q.s01`, ... of an ordered queue; or the lanes
`Q.lane00`, `Q.lane01`, ... that spread tenants, with `Q` for jobs without a tenant and the slow lane `Q.p.low`.
There are also `Q.jobs` and, unless `Q` is ordered, `Q.parcels` for stored jobs. Two queues are shared:
`taskmq.parking` for messages that no worker can run, and `taskmq.unroutable` for messages whose queue was deleted
while they waited.

A server with a cost per queue need not have all of them from the start: `Q.p.high`, `Q.p.low`, `Q.jobs`, `Q.parcels`
and `Q.dlq` may be declared with their first message.
"""

import hashlib
import re
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Final, Literal, NoReturn, get_args

from taskmq.errors import InvalidOption
from taskmq.model.keys import check_reachable

DEFAULT_QUEUE: Final = "default"
PARKING: Final = "taskmq.parking"
UNROUTABLE: Final = "taskmq.unroutable"
TOPIC_QUEUE: Final = "taskmq.on."
"""Prefixes of queues that keep messages from topic exchanges."""

PriorityClass = Literal["high", "medium", "low"]
CLASSES: Final[tuple[PriorityClass, ...]] = ("high", "medium", "low")
QueueKind = Literal["quorum", "classic"]
PriorityMode = Literal["classes", "native"]
RecordMode = Literal["failures", "all"]
Policy = Literal["fifo", "priority", "fair", "weighted", "deadline", "round_robin"]
"""Order in which stored jobs are dispatched to a queue:

- `fair`: priority classes by their shares; in each, tenants by the time that their jobs take, all alike;
- `weighted`: the same, with tenants and pools by their weights;
- `round_robin`: the same, with one job of each tenant in turn, whatever its duration;
- `priority`: the highest priority first, whatever its owner; a waiting job rises;
- `deadline`: priority classes by their shares; in each, the job that expires first;
- `fifo`: the job that has waited longest.
"""
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)

_SUFFIX: Final[dict[PriorityClass, str]] = {"high": ".p.high", "medium": "", "low": ".p.low"}
_DEAD_LETTER_SUFFIX: Final = ".dlq"
_JOBS_SUFFIX: Final = ".jobs"
_PARCELS_SUFFIX: Final = ".parcels"
_REPORTS: Final = "taskmq.reports."
_NODE: Final = "taskmq.node."
_SHARD_SUFFIX: Final = re.compile(r"\.s[0-9]{2}\Z")
_LANE_SUFFIX: Final = re.compile(r"\.lane[0-9]{2}\Z")
# AMQP's short strings hold 255 bytes; a delayed message's routing key spends 56 of them on the delay, and the longest
# suffix of its queue 7.
_NAME_LIMIT: Final = 192
# Cache size: a worker looks a name up for each message, and has few queues.
_NAMES: Final = 4096
_KEY_LIMIT: Final = 255
_MOST_SHARDS: Final = 100
MOST_LANES: Final = 64
_MOST: Final = 2**31 - 1
# Quorum queues of RabbitMQ 4.3 treat a message without a priority as one of 4; so does taskmq.
MIDDLE_PRIORITY: Final = 4


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """A logical queue and its settings at the broker.

    All apps that use a queue must describe it alike; a queue that no app describes has these defaults. taskmq never
    changes an existing queue of RabbitMQ: it refuses a description that differs.

    Args:
        name: up to 192 bytes.
        kind: `quorum` survives the loss of a minority of nodes. `classic` is on one node: faster to enqueue, and lost
            with the node. Brokers other than RabbitMQ ignore it.
        priorities: `classes`: a queue for each of three classes (high, medium, low), which workers serve by weight.
            `native`: one queue, and RabbitMQ orders it: a classic queue in five levels (0-1, 2-3, 4-5, 6-7, 8-9), a
            quorum queue of RabbitMQ 4.3 and later in all ten. That is strict, so low ones may starve. Delayed jobs
            and retries return without their priority: as 4 in a quorum queue, as the lowest in a classic one. Other
            brokers keep the order of publishing.
        ordered: number of shards (1 to 100) into which the jobs' `order_key` splits the queue. Jobs of one key run
            one at a time, in the order of sending. The number cannot be changed while jobs wait. No priorities.
        lanes: number of queues (2 to 64) over which jobs that are sent with a `tenant` are spread, so that the
            backlog of one tenant does not hold up the others: see docs/scheduling.md. The number may change at any
            time: workers consume all existing lanes. No priorities.
        max_length: messages that may wait in a physical queue; beyond it, `send` fails with `PublishRejected`.
            RabbitMQ accepts a few more. Delayed jobs and retries are always accepted.
        max_bytes: the same for the total size of their bodies.
        delivery_limit: how often a quorum queue accepts a message back before it becomes a dead letter. Default: 100.
        policy: order in which stored jobs are dispatched to it, see docs/scheduling.md; a policy in the store takes
            precedence.
        placed: whether the scheduler chooses a host node with the needed resources for each stored job, see
            docs/nodes.md; otherwise any worker of the queue may run it.
        record: `all`: workers also report every run of a sent job, and a scheduler keeps it in the job store, see
            docs/history.md. `failures`: the history has only the failures of sent jobs.

    Raises:
        InvalidOption: a value is invalid; the message names the queue.
    """

    name: str
    kind: QueueKind = "quorum"
    _: KW_ONLY
    priorities: PriorityMode = "classes"
    ordered: int | None = None
    lanes: int | None = None
    max_length: int | None = None
    max_bytes: int | None = None
    delivery_limit: int | None = None
    policy: Policy = "fair"
    placed: bool = False
    record: RecordMode = "failures"

    def __post_init__(self) -> None:
        check_queue_name(self.name)
        if self.kind not in ("quorum", "classic"):
            self._refuse(f"kind={self.kind!r}: 'quorum' or 'classic'")
        if self.policy not in POLICIES:
            self._refuse(f"policy={self.policy!r}: one of {', '.join(POLICIES)}")
        if self.record not in get_args(RecordMode):
            self._refuse(f"record={self.record!r}: 'failures' or 'all'")
        if self.placed and self.ordered is not None:
            self._refuse("ordered and placed exclude each other")
        if self.priorities not in ("classes", "native"):
            self._refuse(f"priorities={self.priorities!r}: 'classes' or 'native'")
        for option, least, most in (
            ("ordered", 1, _MOST_SHARDS),
            ("lanes", 2, MOST_LANES),
            ("max_length", 1, _MOST),
            ("max_bytes", 1, 2**63 - 1),
            ("delivery_limit", 1, _MOST),
        ):
            value: object = getattr(self, option)
            if value is not None and (type(value) is not int or not least <= value <= most):
                self._refuse(f"{option}={value!r}: a whole number from {least} to {most:,}, or None")
        if self.ordered is not None and self.priorities == "native":
            self._refuse("ordered and priorities='native' exclude each other: priorities would change the order")
        if self.lanes is not None and (self.ordered is not None or self.priorities == "native"):
            self._refuse("lanes exclude ordered and priorities='native': each of them says alone what comes next")
        if self.delivery_limit is not None and self.kind == "classic":
            self._refuse("delivery_limit: a classic queue has none; leave it out, or say kind='quorum'")

    @property
    def physical(self) -> tuple[str, ...]:
        """The queues that a worker consumes: classes, the highest first, or lanes; and those of stored jobs."""
        if self.ordered is not None:
            return (*(shard_queue(self.name, number) for number in range(self.ordered)), jobs_queue(self.name))
        stored = (jobs_queue(self.name), parcels_queue(self.name))
        if self.priorities == "native":
            return (self.name, *stored)
        if self.lanes is not None:
            return (*lanes_of(self.name, self.lanes), self.name, slow_lane(self.name), *stored)
        return (*(self.name + _SUFFIX[name] for name in CLASSES), *stored)

    @property
    def always(self) -> tuple[str, ...]:
        """The queues of `physical` that exist from the start; others are declared when a job first needs them."""
        if self.lanes is not None:
            # Producers compare the backlogs of the lanes, so all of them exist.
            return tuple(name for name in self.physical if not is_jobs_queue(name))
        return tuple(name for name in self.physical if not is_on_demand(name))

    @property
    def is_limited(self) -> bool:
        """Whether it may refuse messages because it is full."""
        return self.max_length is not None or self.max_bytes is not None

    def choose_physical(self, *, priority: int | None, order_key: str | None) -> str:
        """Return the physical queue of a message; for a queue with lanes, the one for jobs without a tenant.

        Raises:
            InvalidOption: an ordered queue gets no `order_key`, or a priority; another one gets an `order_key`; a
                queue with lanes gets a priority.
        """
        if priority is None and order_key is None and self.ordered is None:
            return self.name
        self.check_order(order_key)
        if self.ordered is not None and order_key is not None:
            if priority is not None:
                self._refuse(f"it is ordered, so priority={priority!r} cannot be kept: leave priority out")
            return shard_queue(self.name, shard_of(order_key, self.ordered))
        if self.lanes is not None:
            self._refuse(f"it has lanes, so priority={priority!r} cannot be kept: leave priority out")
        if self.priorities == "native":
            class_of(priority)
            return self.name
        return class_queue(self.name, priority)

    def check_order(self, order_key: str | None) -> None:
        """Reject a job without a key in an ordered queue, and one with a key in another queue.

        Raises:
            InvalidOption: the queue is ordered but there is no key, or vice versa.
        """
        if self.ordered is not None and order_key is None:
            self._refuse("it is ordered, so each job needs an order_key")
        if self.ordered is None and order_key is not None:
            self._refuse("order_key needs an ordered queue, and this one is not: WorkQueue(..., ordered=N)")

    def native_priority(self, priority: int | None) -> int | None:
        """Return the broker's priority for a numeric priority; None if the broker does not order the queue."""
        if self.priorities != "native":
            return None
        level = MIDDLE_PRIORITY if priority is None else priority
        return level // 2 if self.kind == "classic" else level

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidOption(f"queue {self.name!r}: {reason}")


def check_queue_name(name: str) -> str:
    """Return `name` if it is a valid queue name.

    Raises:
        InvalidOption: it is not.
    """
    is_ours = name.startswith("taskmq.") and not name.startswith(_NODE)
    reserved = is_ours or name.startswith("amq.") or is_class_queue(name) or is_jobs_queue(name)
    reserved = reserved or name.endswith(_DEAD_LETTER_SUFFIX) or is_shard(name) or is_lane(name)
    # Names with ">" belong to the route of delayed messages. The other two were wildcards in the bindings of version
    # 0.1.
    reserved = reserved or name.startswith(">") or not {"*", "#"}.isdisjoint(name.split("."))
    # `isprintable` comes first: a lone surrogate cannot be encoded.
    if not name.isprintable() or not 0 < len(name.encode()) <= _NAME_LIMIT or reserved or name != name.strip():
        raise InvalidOption(
            f"queue name {name[:80]!r}: 1 to {_NAME_LIMIT} printable bytes, not starting with 'amq.', 'taskmq.' or "
            "'>', not ending with '.dlq', '.jobs', '.parcels', '.p.high', '.p.low' or '.s' or '.lane' and two "
            "digits, and without '*' or '#' between dots"
        )
    return check_reachable(name, what="queue")


def class_of(priority: int | None) -> PriorityClass:
    """Return the class of a numeric priority: 7-9 high, 3-6 and none medium, 0-2 low.

    Raises:
        InvalidOption: it is not a number from 0 to 9.
    """
    if priority is None:
        return "medium"
    if not 0 <= priority <= 9:
        raise InvalidOption(
            f"priority={priority!r}: must be a number from 0 (lowest) to 9 (highest); low is 1, medium 4, high 8"
        )
    if priority >= 7:
        return "high"
    return "medium" if priority >= 3 else "low"


def class_queue(queue: str, priority: int | None) -> str:
    """Return the physical queue of a queue with priority classes, for a numeric priority."""
    return queue + _SUFFIX[class_of(priority)]


def check_order_key(key: object) -> str:
    """Return `key` if it is a valid order key.

    Raises:
        InvalidOption: it is not a text of 1 to 255 bytes.
    """
    if not isinstance(key, str) or not 0 < len(key.encode(errors="replace")) <= _KEY_LIMIT:
        raise InvalidOption(f"order_key: {key!r:.80} must be a string of 1 to {_KEY_LIMIT} bytes")
    return key


def shard_of(key: str, count: int) -> int:
    """Return the shard, of `count`, for the jobs of `key`; the same in every version and language.

    It is the first four bytes of the SHA-256 of the key in UTF-8, as a big-endian unsigned number, modulo `count`.
    """
    # A key that cannot be encoded cannot be published either; it must not fail here.
    digest = hashlib.sha256(key.encode(errors="replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4]) % count


def shard_queue(queue: str, number: int) -> str:
    """Return the physical queue of a shard, from 0."""
    return f"{queue}.s{number:02d}"


@lru_cache(_NAMES)
def is_shard(physical: str) -> bool:
    """Return whether a physical queue is a shard of an ordered one: brokers deliver it to one consumer at a time."""
    return _SHARD_SUFFIX.search(physical) is not None


def lane_queue(queue: str, number: int) -> str:
    """Return the physical queue of a lane, from 0."""
    return f"{queue}.lane{number:02d}"


def lanes_of(queue: str, count: int) -> tuple[str, ...]:
    """Return the lanes of a queue that has `count` of them, without the slow one."""
    return tuple(lane_queue(queue, number) for number in range(count))


def slow_lane(queue: str) -> str:
    """Return the queue for jobs of a tenant whose backlog is too long; workers serve it like the low class."""
    return queue + _SUFFIX["low"]


@lru_cache(_NAMES)
def is_lane(physical: str) -> bool:
    """Return whether a physical queue is a lane other than the slow one."""
    return _LANE_SUFFIX.search(physical) is not None


@lru_cache(_NAMES)
def is_class_queue(physical: str) -> bool:
    """Return whether a physical queue is that of the high or low priority class."""
    return physical.endswith((_SUFFIX["high"], _SUFFIX["low"]))


def is_on_demand(physical: str) -> bool:
    """Return whether a physical queue may be missing until its first message."""
    return is_class_queue(physical) or is_jobs_queue(physical)


@lru_cache(_NAMES)
def logical_queue(physical: str) -> str:
    """Return the logical queue of a physical one."""
    for suffix in (*_SUFFIX.values(), _DEAD_LETTER_SUFFIX, _JOBS_SUFFIX, _PARCELS_SUFFIX):
        if suffix and physical.endswith(suffix):
            return physical.removesuffix(suffix)
    return _LANE_SUFFIX.sub("", _SHARD_SUFFIX.sub("", physical))


@dataclass(frozen=True, slots=True)
class ReportQueue:
    """The queue for reports on one partition's jobs.

    Args:
        name: `reports_queue`.
        letters_of: physical queues of invitations that dead-letter to it.
    """

    name: str
    letters_of: tuple[str, ...] = ()


def jobs_queue(queue: str) -> str:
    """Return the physical queue for invitations to stored jobs; it is declared with its first message."""
    return logical_queue(queue) + _JOBS_SUFFIX


def parcels_queue(queue: str) -> str:
    """Return the physical queue for parcels of invitations; it is declared with its first message."""
    return logical_queue(queue) + _PARCELS_SUFFIX


def node_queue(node: str) -> str:
    """Return the queue of a host node, which its workers consume; jobs placed there wait in its `.jobs`."""
    return f"{_NODE}{node}"


def is_node_queue(physical: str) -> bool:
    """Return whether a physical queue is a host node's, or holds its dead letters."""
    return physical.startswith(_NODE)


def is_jobs_queue(physical: str) -> bool:
    """Return whether a physical queue holds invitations, single ones or parcels of them."""
    return physical.endswith((_JOBS_SUFFIX, _PARCELS_SUFFIX))


def is_parcels_queue(physical: str) -> bool:
    """Return whether a physical queue holds parcels of invitations."""
    return physical.endswith(_PARCELS_SUFFIX)


def reports_queue(app: str, partition: int) -> str:
    """Return the queue for reports on one partition's jobs."""
    return f"{_REPORTS}{app}.{partition}"


def is_work_queue(physical: str) -> bool:
    """Return whether a physical queue may hold jobs: it belongs to a queue that apps describe, and is not its DLQ."""
    try:
        check_queue_name(logical_queue(physical))
    except InvalidOption:
        return False
    return physical != dead_letter_queue(physical)


def is_reports_queue(physical: str) -> bool:
    """Return whether a physical queue holds reports on stored jobs."""
    return physical.startswith(_REPORTS)


def dead_letter_queue(queue: str) -> str:
    """Return the queue for dead jobs of `queue`, which may be physical."""
    return logical_queue(queue) + _DEAD_LETTER_SUFFIX
