"""Which runs are to give way, so that jobs of a guaranteed share can begin. Pure.

    claims: jobs that wait, of pools and classes that have less than their guarantee
      -> they fit without an eviction: no run leaves
      -> on the node where the fewest have to: the lowest and newest runs, until the job fits

What holds for every plan: only runs that allow it leave; no pool or class is left with less than its own guarantee; a
pool or class gets room for no more jobs than it is owed; and no run leaves for a job that does not fit even then. A
queue without nodes is one node, which has the slots of its workers. The same call gives the same plan.

A guarantee is of amounts: slots, or what jobs take of nodes. A job is owed its place while its pool has less than it
is guaranteed of each of these that the job takes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from taskmq.model.nodes import HostNode, JobNeeds, add_amounts, could_ever_fit, fits
from taskmq.model.resources import Amounts

__all__ = ["Claim", "Eviction", "Occupant", "owed", "plan_evictions"]

# Sums of parts of a processor are not exact.
_TINY: Final = 1e-9

_Used = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that waits.

    Attributes:
        groups: the pools and classes with a guarantee that it belongs to.
    """

    job: str
    groups: tuple[str, ...]
    needs: JobNeeds


@dataclass(frozen=True, slots=True)
class Occupant:
    """A job that runs.

    Attributes:
        groups: as in `Claim`.
        amounts: what it takes of its node.
        began: ms since the epoch.
        gives_way: it may be asked to leave.
        is_leaving: it was asked to.
    """

    job: str
    groups: tuple[str, ...]
    node: str
    amounts: Amounts
    priority: int
    began: int
    gives_way: bool
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class Eviction:
    """A run that is to leave: for which job, and of which pool or class that is."""

    job: str
    claim: str
    group: str


def owed(occupants: Iterable[Occupant], least: Mapping[str, Amounts]) -> dict[str, int]:
    """How much less than its guarantee each pool and class has, rounded up; those that have it are left out."""
    used = _used(occupants)
    found: dict[str, int] = {}
    for group, guaranteed in least.items():
        of_group = used.get(group, {})
        missing = max((amount - of_group.get(name, 0.0) for name, amount in guaranteed.items()), default=0.0)
        if missing > _TINY:
            found[group] = ceil(missing - _TINY)
    return found


def plan_evictions(
    claims: Sequence[Claim], occupants: Sequence[Occupant], nodes: Iterable[HostNode], least: Mapping[str, Amounts]
) -> list[Eviction]:
    """Who leaves, for whom.

    Args:
        claims: those that go first first; at most one of each job.
        nodes: with what is used of them now, also by those that leave.
        least: the guarantees.
    """
    plan = _Plan(occupants, nodes, least)
    for claim in claims:
        plan.admit(claim)
    return plan.evictions


class _Plan:
    def __init__(
        self, occupants: Sequence[Occupant], nodes: Iterable[HostNode], least: Mapping[str, Amounts]
    ) -> None:
        self.evictions: list[Eviction] = []
        self._least = least
        self._nodes = sorted((node for node in nodes if node.is_open), key=_by_name)
        self._free: dict[str, dict[str, float]] = {node.name: node.free for node in self._nodes}
        self._used = _used(occupants)
        self._able: defaultdict[str, list[Occupant]] = defaultdict(list)
        for one in sorted(occupants, key=_lowest_and_newest):
            if one.is_leaving and one.node in self._free:
                self._free[one.node] = add_amounts(self._free[one.node], one.amounts)
            elif one.gives_way and not one.is_leaving:
                self._able[one.node].append(one)

    def admit(self, claim: Claim) -> None:
        """Make room for a job, if it is owed that and it can be."""
        wanted = claim.needs.amounts
        group = next((name for name in claim.groups if self._is_owed(name, wanted)), None)
        if group is None:
            return
        nodes = [node for node in self._nodes if could_ever_fit(claim.needs, node)]
        plans = [(node.name, found) for node in nodes if (found := self._leavers(claim, group, node)) is not None]
        if not plans:
            return
        node, leavers = min(plans, key=_fewest)
        for one in leavers:
            self._able[node].remove(one)
            _count(self._used, one.groups, one.amounts, sign=-1.0)
            self._free[node] = add_amounts(self._free[node], one.amounts)
            self.evictions.append(Eviction(one.job, claim.job, group))
        self._free[node] = add_amounts(self._free[node], wanted, sign=-1.0)
        _count(self._used, claim.groups, wanted)

    def _is_owed(self, group: str, wanted: Amounts) -> bool:
        used, least = self._used.get(group, {}), self._least[group]
        asked = least.keys() & wanted.keys()
        return bool(asked) and all(used.get(name, 0.0) < least[name] - _TINY for name in asked)

    def _leavers(self, claim: Claim, group: str, node: HostNode) -> list[Occupant] | None:
        """Who has to leave a node; None where the job would not fit even then."""
        wanted, free = claim.needs.amounts, self._free[node.name]
        used = {name: dict(amounts) for name, amounts in self._used.items()}
        found: list[Occupant] = []
        for one in self._able[node.name]:
            if fits(wanted, free):
                break
            # Where both belong to it, it has as much afterwards as before.
            others = [name for name in one.groups if name not in claim.groups]
            if group in one.groups or any(self._is_needed(used[name], one.amounts, name) for name in others):
                continue
            _count(used, one.groups, one.amounts, sign=-1.0)
            free = add_amounts(free, one.amounts)
            found.append(one)
        if not fits(wanted, free):
            return None
        for one in reversed(found[:]):
            if fits(wanted, left := add_amounts(free, one.amounts, sign=-1.0)):
                free = left
                found.remove(one)
        return found

    def _is_needed(self, used: Amounts, amounts: Amounts, group: str) -> bool:
        """Whether a pool or class would be left with less than its guarantee without so much."""
        least = self._least[group]
        return any(used[name] - amounts[name] < least[name] - _TINY for name in least.keys() & amounts.keys())


def _used(occupants: Iterable[Occupant]) -> _Used:
    found: _Used = {}
    for one in occupants:
        if not one.is_leaving:
            _count(found, one.groups, one.amounts)
    return found


def _count(used: _Used, groups: Iterable[str], amounts: Amounts, *, sign: float = 1.0) -> None:
    for group in groups:
        used[group] = add_amounts(used.get(group, {}), amounts, sign=sign)


def _lowest_and_newest(one: Occupant) -> tuple[int, int, str]:
    return one.priority, -one.began, one.job


def _fewest(plan: tuple[str, list[Occupant]]) -> tuple[int, str]:
    return len(plan[1]), plan[0]


def _by_name(node: HostNode) -> str:
    return node.name
