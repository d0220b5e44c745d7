"""Room on the nodes while a plan is made, including the node held for a large job. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from taskmq.model.nodes import HostNode, JobNeeds, add_amounts, could_ever_fit, fits, has_labels, left_over
from taskmq.model.resources import Amounts

# Number of candidate nodes to compare; in a large cluster a better fit is not worth the time.
_ENOUGH: Final = 100


@dataclass(frozen=True, slots=True)
class NodeRun:
    """A job on a node, and its expected end in seconds."""

    node: str
    amounts: Mapping[str, float]
    ends: float


@dataclass(frozen=True, slots=True)
class Hold:
    """A node that is held for a job.

    Attributes:
        begins: when it is expected to have room.
        spare: amounts that will then be free beside it.
    """

    job: str
    node: str
    begins: float
    spare: Mapping[str, float]


class Room:
    """Free amounts of the nodes. Instants are seconds.

    Args:
        nodes: nodes as stored.
    """

    def __init__(self, nodes: Iterable[HostNode], *, now: float) -> None:
        self.nodes = {node.name: node for node in nodes if node.is_open and node.told.runs_jobs}
        self.hold: Hold | None = None
        self._free: dict[str, dict[str, float]] = {name: node.free for name, node in self.nodes.items()}
        self._order = [self.nodes[name] for name in sorted(self.nodes)]
        # By needs of a job: index of the first node that may still fit.
        self._firsts: dict[object, int] = {}
        self._now = now

    def copy(self) -> "Room":
        """Return a copy, for a plan that may be discarded."""
        found = Room((), now=self._now)
        found.nodes, found.hold, found._free = self.nodes, self.hold, dict(self._free)
        found._order, found._firsts = self._order, dict(self._firsts)
        return found

    def could_fit(self, needs: JobNeeds) -> bool:
        """Whether the job would fit on an open node if that were empty."""
        return any(could_ever_fit(needs, node) for node in self.nodes.values())

    def choices(
        self, needs: JobNeeds, *, labels: Mapping[str, str] | None = None, job: str = "", seconds: float = 0.0
    ) -> Sequence[HostNode]:
        """Return the first hundred nodes by name that the job fits on now.

        Args:
            labels: required labels; default: those that the job needs.
            job: id of the job, for which a node may be held.
            seconds: expected run time of the job.
        """
        amounts, labels = needs.amounts, needs.labels if labels is None else labels
        key = (frozenset(amounts.items()), frozenset(labels.items()))
        # Room only shrinks while a plan is made, so a node that did not fit once does not fit later.
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
        """Return the node with the least left over (best fit); None if there are none."""
        amounts = needs.amounts

        def rank(node: HostNode) -> tuple[float, str]:
            return left_over(amounts, self._free[node.name], node.told.capacity), node.name

        return min(choices, key=rank, default=None)

    def take(self, node: str, amounts: Amounts, *, seconds: float) -> None:
        """Subtract the amounts of a job placed on a node."""
        self._free[node] = add_amounts(self._free[node], amounts, sign=-1.0)
        hold = self.hold
        if hold is not None and hold.node == node and self._now + seconds > hold.begins:
            spare = add_amounts(hold.spare, amounts, sign=-1.0)
            self.hold = Hold(hold.job, hold.node, hold.begins, spare)

    def hold_for(self, job: str, needs: JobNeeds, flights: Sequence[NodeRun]) -> None:
        """Hold the node on which a job can be expected to start first; it `could_fit` on one."""
        able = [name for name, node in self.nodes.items() if could_ever_fit(needs, node)]
        there: defaultdict[str, list[NodeRun]] = defaultdict(list)
        for flight in sorted(flights, key=_by_end):
            there[flight.node].append(flight)
        found = {name: self._begins(name, needs.amounts, there[name]) for name in able}
        name = min(able, key=lambda name: (found[name][0], name))
        begins, free = found[name]
        self.hold = Hold(job, name, begins, add_amounts(free, needs.amounts, sign=-1.0))

    def _begins(self, name: str, amounts: Amounts, flights: Sequence[NodeRun]) -> tuple[float, dict[str, float]]:
        """Return when the amounts are expected to be free on a node, and what will be free then."""
        free, at = self._free[name], self._now
        for flight in flights:
            if fits(amounts, free):
                break
            free, at = add_amounts(free, flight.amounts), max(flight.ends, self._now)
        # Others use the node, and their end is unknown here.
        return (at, free) if fits(amounts, free) else (inf, self.nodes[name].told.capacity)

    def _leaves_hold(self, name: str, amounts: Amounts, job: str, seconds: float) -> bool:
        hold = self.hold
        if hold is None or hold.node != name or hold.job == job:
            return True
        return self._now + seconds <= hold.begins < inf or fits(amounts, hold.spare)


def _by_end(flight: NodeRun) -> float:
    return flight.ends
