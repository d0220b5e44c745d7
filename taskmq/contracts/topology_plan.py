"""Comparison of a broker's topology with the wanted one: the contract of brokers that offer it. Plain values.

A broker whose objects (queues, exchanges, permissions, policies) live on a server of their own is `Plannable`.
Missing objects may be created. Objects with other properties are reported and never changed automatically. Unwanted
objects are reported and never deleted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import msgspec

from taskmq.model.topology import WorkQueue

Status = Literal["same", "missing", "later", "different", "extra", "unseen"]
Role = Literal["producer", "worker", "beat", "scheduler", "server", "operator"]


class TopologyEntry(msgspec.Struct, frozen=True):
    """An object at the broker, wanted or found.

    Attributes:
        status: `later` does not exist and need not: it is declared with its first message; `extra` exists, looks like
            taskmq's, and is not wanted; `unseen` could not be inspected, or not closely enough.
        kind: `exchange`, `queue`, `binding`, in the broker's own words.
        detail: the wanted and the found properties.
        remedy: what to do; "" if nothing has to be done.
    """

    status: Status
    kind: str
    name: str
    detail: str = ""
    remedy: str = ""


class Comparison(msgspec.Struct, frozen=True):
    """Wanted objects compared with existing ones, in the order of declaration.

    Attributes:
        blind: what could not be inspected, why, and what to do about it; None: everything was inspected.
    """

    entries: tuple[TopologyEntry, ...]
    blind: str | None = None

    @property
    def is_same(self) -> bool:
        """Whether nothing is missing or different. Extra objects do no harm."""
        return not any(entry.status in ("missing", "different") for entry in self.entries)


class QueueTuning(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a queue by policy, which may change at any time.

    Attributes:
        longest: the longest time limit of its tasks in seconds; None: at least one has none.
        max_length: maximum of ready messages in one physical queue; beyond it publishing is refused.
        return_delay: seconds before a requeued message is redelivered.
    """

    queue: WorkQueue
    longest: float | None = None
    max_length: int | None = None
    return_delay: float | None = None


@dataclass(frozen=True, slots=True)
class Instruction:
    """An action for an operator at the broker.

    Attributes:
        about: its purpose.
        note: remarks.
        shell: the command; "" if there is none.
        request: the same for the broker's HTTP API: `method`, `path` and `body`; None if there is none.
    """

    about: str
    note: str = ""
    shell: str = ""
    request: Mapping[str, object] | None = field(default=None, hash=False)


class Login(msgspec.Struct, frozen=True):
    """A user at the broker for one kind of process.

    Attributes:
        url: for the process; with the password of a new user, which is stored nowhere else.
    """

    role: Role
    user: str
    url: str

    def __repr__(self) -> str:
        return f"<Login {self.user} {self.role}>"


class Isolation(msgspec.Struct, frozen=True):
    """A part of a broker that is reserved for one tenant.

    Attributes:
        others: other users who may use it, usually operators.
    """

    logins: tuple[Login, ...]
    others: tuple[str, ...]


class Topology(Protocol):
    """The requirements of some queues at one broker."""

    async def compare(self) -> Comparison:
        """Compare with the broker; nothing is changed.

        Raises:
            BrokerUnavailable: the broker could not be reached.
        """
        ...

    async def create_missing(self) -> Comparison:
        """Create missing objects, including those that could be declared later; return the comparison before.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: an object exists with other properties; nothing was changed.
        """
        ...

    def definitions(self) -> Mapping[str, object]:
        """Return the complete topology in the form that the broker imports."""
        ...

    async def policies(self, tuning: Sequence[QueueTuning], *, version: str | None = None) -> list[Instruction]:
        """Return the policies of the queues for the broker's version, or the given one.

        Raises:
            BrokerUnavailable: no version was given, and the broker could not be reached.
            InvalidOption: this is not a version.
            UnsupportedFeature: a setting does not exist in this version.
        """
        ...

    def permissions(self, role: Role, *, user: str) -> Instruction:
        """Return the minimal permissions that `user` needs for a role."""
        ...

    def isolation(self, tenant: str, roles: Iterable[Role]) -> list[Instruction]:
        """Return the actions of `isolate`, in order.

        Raises:
            InvalidOption: the tenant's name cannot be used.
        """
        ...

    async def isolate(self, tenant: str, roles: Iterable[Role]) -> Isolation:
        """Reserve a part of the broker for a tenant: its queues, and a user for each role without other access.

        A repeated call adds what is missing, and keeps passwords.

        Raises:
            AccessDenied: this user lacks a permission.
            BrokerUnavailable: the broker, or a needed part of it, could not be reached.
            InvalidOption: the tenant's name cannot be used.
            TopologyMismatch: a user of such a name exists with more permissions; nothing was changed.
        """
        ...

    async def migrate(self, *, report: Callable[[str], None], producers_stopped: bool = False) -> int:
        """Recreate queues that exist with other properties, with their messages; return their number.

        Their workers must be stopped. Producers may continue: for a while they get `PublishRejected`, and may be
        disconnected briefly. Confirmed messages are never lost; after a failure a message may exist twice, with the
        same id. After a failure, or after this process is killed, simply call it again.

        Args:
            report: called with each step, in words for people.
            producers_stopped: whether no client publishes to these queues, so that none is disconnected.

        Raises:
            AccessDenied: this user lacks a permission.
            BrokerUnavailable: the broker, or a needed part of it, could not be reached.
            TopologyMismatch: it cannot be done in the present state; the message says what to do.
        """
        ...


@runtime_checkable
class Plannable(Protocol):
    """A broker that keeps a topology on a server."""

    def topology(self, queues: Iterable[WorkQueue]) -> Topology:
        """Return the requirements of `queues` and of all shared objects."""
        ...
