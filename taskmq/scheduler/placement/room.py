"""What is free on the nodes while a plan is made, and what is held for a job that is too large for now. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from taskmq.model.nodes import HostNode, JobNeeds, add_amounts, could_ever_fit, fits, has_labels, left_over
from taskmq.model.resources import Amounts

__all__ = ["Hold", "NodeRun", "Room"]


# Among so many the best is looked for; in a large cluster a better one is not worth the time.
_ENOUGH: Final = 100


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
        self._order = [self.nodes[name] for name in sorted(self.nodes)]
        # By what a job asks for: before this place there is no node for it any more.
        self._firsts: dict[object, int] = {}
        self._now = now

    def copy(self) -> "Room":
        """Another one, for a plan that may come to nothing."""
        found = Room((), now=self._now)
        found.nodes, found.hold, found._free = self.nodes, self.hold, dict(self._free)
        found._order, found._firsts = self._order, dict(self._firsts)
        return found

    def could_fit(self, needs: JobNeeds) -> bool:
        """Whether an open node would do if it were empty."""
        return any(could_ever_fit(needs, node) for node in self.nodes.values())

    def choices(
        self, needs: JobNeeds, *, labels: Mapping[str, str] | None = None, job: str = "", seconds: float = 0.0
    ) -> Sequence[HostNode]:
        """Nodes that it fits on now, the first hundred by name.

        Args:
            labels: that they must have; default: those that the job needs.
            job: its id, for whom a node may be held.
            seconds: for how long it will probably run.
        """
        amounts, labels = needs.amounts, needs.labels if labels is None else labels
        key = (frozenset(amounts.items()), frozenset(labels.items()))
        # While a plan is made room only gets less: a node that did not do for such a job will not do for the next
        # one.
        first = self._firsts.get(key, 0)
        found: list[HostNode] = []
        has_begun = False
        for node in self._order[first:]:
            if not fits(amounts, self._free[node.name]) or not has_labels(node, labels):
                first += not has_begun
                continue
            has_begun = True
            if self._leaves_hold(node.name, amounts, job, seconds):
                found.append(node)
                if len(found) == _ENOUGH:
                    break
        self._firsts[key] = first
        return found

    def best(self, needs: JobNeeds, choices: Sequence[HostNode]) -> HostNode | None:
        """Of these nodes the one of which the least is left over; None where there are none."""
        amounts = needs.amounts

        def rank(node: HostNode) -> tuple[float, str]:
            return left_over(amounts, self._free[node.name], node.told.capacity), node.name

        return min(choices, key=rank, default=None)

    def take(self, node: str, amounts: Amounts, *, seconds: float) -> None:
        """A job goes there."""
        self._free[node] = add_amounts(self._free[node], amounts, sign=-1.0)
        hold = self.hold
        if hold is not None and hold.node == node and self._now + seconds > hold.begins:
            spare = add_amounts(hold.spare, amounts, sign=-1.0)
            self.hold = Hold(hold.job, hold.node, hold.begins, spare)

    def hold_for(self, job: str, needs: JobNeeds, flights: Sequence[NodeRun]) -> None:
        """Hold the node on which a job can probably begin first; it `could_fit` on one."""
        able = [name for name, node in self.nodes.items() if could_ever_fit(needs, node)]
        there: defaultdict[str, list[NodeRun]] = defaultdict(list)
        for flight in sorted(flights, key=_by_end):
            there[flight.node].append(flight)
        found = {name: self._begins(name, needs.amounts, there[name]) for name in able}
        name = min(able, key=lambda name: (found[name][0], name))
        begins, free = found[name]
        self.hold = Hold(job, name, begins, add_amounts(free, needs.amounts, sign=-1.0))

    def _begins(self, name: str, amounts: Amounts, flights: Sequence[NodeRun]) -> tuple[float, dict[str, float]]:
        """When so much will be free on a node, where these end one after the other, and what will be free then."""
        free, at = self._free[name], self._now
        for flight in flights:
            if fits(amounts, free):
                break
            free, at = add_amounts(free, flight.amounts), max(flight.ends, self._now)
        # What others have there, whose end is unknown here.
        return (at, free) if fits(amounts, free) else (inf, self.nodes[name].told.capacity)

    def _leaves_hold(self, name: str, amounts: Amounts, job: str, seconds: float) -> bool:
        hold = self.hold
        if hold is None or hold.node != name or hold.job == job:
            return True
        return self._now + seconds <= hold.begins < inf or fits(amounts, hold.spare)


def _by_end(flight: NodeRun) -> float:
    return flight.ends
