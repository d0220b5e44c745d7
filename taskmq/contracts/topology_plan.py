"""What taskmq keeps at a broker, compared with what is there: the contract of brokers that can tell. Plain values.

A broker whose objects live on a server of their own (queues, exchanges, permissions, policies) is `Plannable`. What
is missing may be created. What is there with other properties is reported and never changed by itself; what is there
and not wanted is reported and never deleted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import msgspec

from taskmq.model.topology import WorkQueue

__all__ = [
    "Comparison",
    "Instruction",
    "Isolation",
    "Login",
    "Plannable",
    "QueueTuning",
    "Role",
    "Status",
    "Topology",
    "TopologyEntry",
]

Status = Literal["same", "missing", "later", "different", "extra", "unseen"]
Role = Literal["producer", "worker", "beat", "scheduler", "server", "operator"]


class TopologyEntry(msgspec.Struct, frozen=True):
    """One thing at the broker, wanted or found.

    Attributes:
        status: `later` is not there and need not be: it is declared when a message first needs it; `extra` is
            there, looks like taskmq's, and was not asked for; `unseen` could not be looked at, or not closely
            enough.
        kind: `exchange`, `queue`, `binding`, in the broker's own words.
        detail: what is wanted and what was found.
        remedy: what to do; "" where nothing is to be done.
    """

    status: Status
    kind: str
    name: str
    detail: str = ""
    remedy: str = ""


class Comparison(msgspec.Struct, frozen=True):
    """What is wanted against what is there, in the order of declaring.

    Attributes:
        blind: what could not be looked at, why, and what to do about it; None: everything was seen.
    """

    entries: tuple[TopologyEntry, ...]
    blind: str | None = None

    @property
    def is_same(self) -> bool:
        """Whether nothing is missing or different. What is extra does no harm."""
        return not any(entry.status in ("missing", "different") for entry in self.entries)


class QueueTuning(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue is given by policy, changeable at any time.

    Attributes:
        longest: the longest time limit of its tasks in seconds; None: at least one has none.
        max_length: ready messages of one physical queue, beyond which publishing is refused.
        return_delay: seconds that a message which a worker gives back waits before it comes again.
    """

    queue: WorkQueue
    longest: float | None = None
    max_length: int | None = None
    return_delay: float | None = None


@dataclass(frozen=True, slots=True)
class Instruction:
    """Something that an operator does at the broker.

    Attributes:
        about: what it is for.
        note: what to know about it.
        shell: the command; "" where none does it.
        request: the same for the broker's HTTP API: `method`, `path` and `body`; None where there is none.
    """

    about: str
    note: str = ""
    shell: str = ""
    request: Mapping[str, object] | None = field(default=None, hash=False)


class Login(msgspec.Struct, frozen=True):
    """A user at the broker for one kind of process.

    Attributes:
        url: for the process; with the password where the user is new, which is kept nowhere else.
    """

    role: Role
    user: str
    url: str

    def __repr__(self) -> str:
        return f"<Login {self.user} {self.role}>"


class Isolation(msgspec.Struct, frozen=True):
    """A part of a broker that one tenant has for itself.

    Attributes:
        others: users beside the tenant's own who may use it, operators as a rule.
    """

    logins: tuple[Login, ...]
    others: tuple[str, ...]


class Topology(Protocol):
    """What some queues need at one broker."""

    async def compare(self) -> Comparison:
        """Compare; nothing is changed.

        Raises:
            BrokerUnavailable: the broker could not be reached.
        """
        ...

    async def create_missing(self) -> Comparison:
        """Create what is missing, what would be created later too; nothing else. What was found before.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: something exists with other properties; nothing was changed.
        """
        ...

    def definitions(self) -> Mapping[str, object]:
        """All of it, in the form that the broker imports."""
        ...

    async def policies(self, tuning: Sequence[QueueTuning], *, version: str | None = None) -> list[Instruction]:
        """What tunes the queues on the broker's version, or the given one.

        Raises:
            BrokerUnavailable: no version was given, and the broker could not be reached.
            InvalidOption: this is no version.
            UnsupportedFeature: something asked for does not exist in this version.
        """
        ...

    def permissions(self, role: Role, *, user: str) -> Instruction:
        """What `user` has to be allowed for a role, and no more."""
        ...

    def isolation(self, tenant: str, roles: Iterable[Role]) -> list[Instruction]:
        """Return what `isolate` does, in this order.

        Raises:
            InvalidOption: the tenant's name cannot be used.
        """
        ...

    async def isolate(self, tenant: str, roles: Iterable[Role]) -> Isolation:
        """Give a tenant a part of the broker: the queues, and a user for each role who reaches nothing else.

        Again it adds what is missing, and leaves passwords as they are.

        Raises:
            AccessDenied: this user may not do what is needed.
            BrokerUnavailable: the broker, or what is needed of it, could not be reached.
            InvalidOption: the tenant's name cannot be used.
            TopologyMismatch: a user of such a name exists, and may do more than this; nothing was changed.
        """
        ...

    async def migrate(self, *, report: Callable[[str], None], producers_stopped: bool = False) -> int:
        """Make queues that are there with other properties anew, with what is in them; how many.

        Their workers have to be stopped. Producers may go on: for a while they get `PublishRejected`, and may be
        disconnected for a moment. What was confirmed is never lost; a message may be there twice, with the same id,
        after a failure. After one, or after this process is killed, it is simply called again.

        Args:
            report: called with each step, in words for people.
            producers_stopped: no client publishes to these queues: none has to be disconnected.

        Raises:
            AccessDenied: this user may not do what is needed.
            BrokerUnavailable: the broker, or what is needed of it, could not be reached.
            TopologyMismatch: it cannot be done as things are; the message says what to do.
        """
        ...


@runtime_checkable
class Plannable(Protocol):
    """A broker that keeps a topology on a server."""

    def topology(self, queues: Iterable[WorkQueue]) -> Topology:
        """What `queues` and everything shared need."""
        ...
