"""What is free on the nodes while a plan is made, and what is held for a job that is too large for now. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from taskmq.model.nodes import HostNode, JobNeeds, added, could_ever_fit, fits, has_labels, left_over
from taskmq.model.resources import Amounts

__all__ = ["Hold", "NodeRun", "Room"]


@dataclass(frozen=True, slots=True)
class NodeRun:
    """A job that runs on a node, and when it will probably have ended; seconds."""

    node: str
    amounts: Mapping[str, float]
    ends: float


@dataclass(frozen=True, slots=True)
class Hold:
    """A node that is held for a job.

    Attributes:
        begins: when there will probably be room for it.
        spare: what will be free then beside it.
    """

    job: str
    node: str
    begins: float
    spare: Mapping[str, float]


class Room:
    """What is free. Instants are seconds.

    Args:
        nodes: as the store has them.
    """

    def __init__(self, nodes: Iterable[HostNode], *, now: float) -> None:
        self.nodes = {node.name: node for node in nodes if node.is_open and node.told.runs_jobs}
        self.hold: Hold | None = None
        self._free: dict[str, dict[str, float]] = {name: node.free for name, node in self.nodes.items()}
        self._now = now

    def copy(self) -> "Room":
        """Another one, for a plan that may come to nothing."""
        found = Room((), now=self._now)
        found.nodes, found.hold, found._free = self.nodes, self.hold, dict(self._free)
        return found

    def could_fit(self, needs: JobNeeds) -> bool:
        """Whether an open node would do if it were empty."""
        return any(could_ever_fit(needs, node) for node in self.nodes.values())

    def choices(self, needs: JobNeeds, *, job: str = "", seconds: float = 0.0) -> Sequence[HostNode]:
        """The nodes that it fits on now.

        Args:
            job: its id, for whom a node may be held.
            seconds: for how long it will probably run.
        """
        return [
            node
            for name, node in self.nodes.items()
            if fits(needs.amounts, self._free[name])
            and has_labels(node, needs.labels)
            and self._leaves_hold(name, needs.amounts, job, seconds)
        ]

    def best(self, needs: JobNeeds, choices: Sequence[HostNode]) -> HostNode | None:
        """Of these nodes the one with preferred labels, and of those the one of which the least is left over."""

        def rank(node: HostNode) -> tuple[bool, float, str]:
            left = left_over(needs.amounts, self._free[node.name], node.told.capacity)
            return not has_labels(node, needs.prefers), left, node.name

        return min(choices, key=rank, default=None)

    def take(self, node: str, amounts: Amounts, *, seconds: float) -> None:
        """A job goes there."""
        self._free[node] = added(self._free[node], amounts, sign=-1.0)
        hold = self.hold
        if hold is not None and hold.node == node and self._now + seconds > hold.begins:
            spare = added(hold.spare, amounts, sign=-1.0)
            self.hold = Hold(hold.job, hold.node, hold.begins, spare)

    def hold_for(self, job: str, needs: JobNeeds, flights: Sequence[NodeRun]) -> None:
        """Hold the node on which a job can probably begin first; it `could_fit` on one."""
        able = [name for name, node in self.nodes.items() if could_ever_fit(needs, node)]
        found = {name: self._begins(name, needs.amounts, flights) for name in able}
        name = min(able, key=lambda name: (found[name][0], name))
        begins, free = found[name]
        self.hold = Hold(job, name, begins, added(free, needs.amounts, sign=-1.0))

    def _begins(self, name: str, amounts: Amounts, flights: Sequence[NodeRun]) -> tuple[float, dict[str, float]]:
        """When so much will be free on a node, and what will be free then."""
        free, at = self._free[name], self._now
        for flight in sorted((each for each in flights if each.node == name), key=_by_end):
            if fits(amounts, free):
                break
            free, at = added(free, flight.amounts), max(flight.ends, self._now)
        # What others have there, of whom nobody here knows when they end.
        return (at, free) if fits(amounts, free) else (inf, self.nodes[name].told.capacity)

    def _leaves_hold(self, name: str, amounts: Amounts, job: str, seconds: float) -> bool:
        hold = self.hold
        if hold is None or hold.node != name or hold.job == job:
            return True
        return self._now + seconds <= hold.begins < inf or fits(amounts, hold.spare)


def _by_end(flight: NodeRun) -> float:
    return flight.ends
