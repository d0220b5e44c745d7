"""Evictions: the runs that have to give way, so that jobs of a guaranteed share can start. Pure.

    claims: waiting jobs of pools and classes below their guarantee
      -> they fit without an eviction: no run leaves
      -> otherwise, on the node that needs the fewest evictions: the lowest and newest runs, until the job fits

In every plan, only runs that allow it leave, no pool or class falls below its own guarantee, a pool or class gets
room for no more jobs than its guarantee, and no run leaves for a job that does not fit even then. A queue without
nodes counts as one node with the slots of its workers. Equal calls give equal plans.

A guarantee consists of amounts: slots, or resources of nodes. A job may claim room while its pool has less than its
guarantee of each resource that the job needs.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from taskmq.model.nodes import HostNode, JobNeeds, add_amounts, could_ever_fit, fits
from taskmq.model.resources import Amounts

# Tolerance for rounding errors.
_TINY: Final = 1e-9

_Used = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A waiting job that may claim room.

    Attributes:
        groups: its pools and classes with a guarantee.
    """

    job: str
    groups: tuple[str, ...]
    needs: JobNeeds


@dataclass(frozen=True, slots=True)
class Occupant:
    """A running job that may have to leave.

    Attributes:
        groups: see `Claim`.
        amounts: amounts that it uses of its node.
        began: when it started (ms since the epoch).
        gives_way: whether it may be asked to leave.
        is_leaving: whether it was asked to leave.
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
    """A run that has to leave, the job it makes room for, and the pool or class of that job."""

    job: str
    claim: str
    group: str


def compute_missing(occupants: Iterable[Occupant], least: Mapping[str, Amounts]) -> dict[str, int]:
    """Return how much each pool and class lacks of its guarantee, rounded up; those that have it are left out."""
    used = _sum_usage(occupants)
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
    """Plan which runs leave for which claims.

    Args:
        claims: claims in order of precedence; at most one per job.
        nodes: nodes with their current usage, including runs that are leaving.
        least: guarantees.
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
        self._used = _sum_usage(occupants)
        self._able: defaultdict[str, list[Occupant]] = defaultdict(list)
        for one in sorted(occupants, key=_lowest_and_newest):
            if one.is_leaving and one.node in self._free:
                self._free[one.node] = add_amounts(self._free[one.node], one.amounts)
            elif one.gives_way and not one.is_leaving:
                self._able[one.node].append(one)

    def admit(self, claim: Claim) -> None:
        """Make room for a job, if its guarantee requires it and it is possible."""
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
        """Return the runs that have to leave a node; None if the job would not fit even then."""
        wanted, free = claim.needs.amounts, self._free[node.name]
        used = {name: dict(amounts) for name, amounts in self._used.items()}
        found: list[Occupant] = []
        for one in self._able[node.name]:
            if fits(wanted, free):
                break
            # A group of both jobs has the same amounts afterwards.
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
        """Whether a pool or class would fall below its guarantee without these amounts."""
        least = self._least[group]
        return any(used[name] - amounts[name] < least[name] - _TINY for name in least.keys() & amounts.keys())


def _sum_usage(occupants: Iterable[Occupant]) -> _Used:
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
