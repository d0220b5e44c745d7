"""Requirements of a job on its node, and the nodes that meet them. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypedDict, TypeVar

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.nodes.allocations import Placement
from taskmq.model.nodes.host_nodes import HostNode, check_labels
from taskmq.model.resources import Amounts, amounts_text, read_amounts
from taskmq.model.units import did_you_mean

SLOTS: Final = "slots"
"""The resource that every placed job uses one unit of."""

# Sums of fractions of a processor are not exact.
_TINY: Final = 1e-9
_PATIENCE: Final = 3.0
_LONGEST_PATIENCE: Final = 86_400.0
_MOST_RESOURCES: Final = 32
# Maximum of jobs that a scheduler examines together.
_LARGEST_GANG: Final = 500
_SHOWN: Final = 3

_Job = TypeVar("_Job")


class PlaceOptions(TypedDict, total=False):
    """Placement as submitters request it: see `JobNeeds`; `gang` is a name and the number of its jobs."""

    labels: Mapping[str, str]
    prefers: Mapping[str, str]
    patience: float
    gang: tuple[str, int]


class JobNeeds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requirements of a job on the node that it is placed on.

    Attributes:
        resources: amounts; `slots` defaults to 1.
        labels: labels that the node must have.
        prefers: preferred labels: the job waits up to `patience` seconds for such a node.
        gang: jobs of one gang, tenant and queue start together, or not at all.
        gang_size: the number of jobs in the gang.
    """

    resources: dict[str, float] = {}
    labels: dict[str, str] = {}
    prefers: dict[str, str] = {}
    patience: float = _PATIENCE
    gang: str = ""
    gang_size: int = 0

    @property
    def amounts(self) -> dict[str, float]:
        """Amounts that the job uses of its node."""
        return {SLOTS: 1.0, **self.resources}


def job_needs(resources: Mapping[str, object] | None = None, place: PlaceOptions | None = None) -> JobNeeds | None:
    """Return the requirements of a submission; None if there are none.

    Raises:
        InvalidOption: a value is invalid; the message names the option.
    """
    if not resources and not place:
        return None
    wanted = place or {}
    if unknown := sorted(wanted.keys() - PlaceOptions.__annotations__.keys()):
        raise InvalidOption(f"place: {did_you_mean(unknown[0], sorted(PlaceOptions.__annotations__))}")
    patience, gang = wanted.get("patience"), wanted.get("gang")
    amounts = read_amounts(resources, what="resources") if resources else {}
    if len(amounts) > _MOST_RESOURCES:
        raise InvalidOption(f"resources: at most {_MOST_RESOURCES} are allowed, got {len(amounts)}")
    if patience is not None and not 0 <= patience <= _LONGEST_PATIENCE:
        raise InvalidOption(f"patience={patience!r}: must be 0 to {_LONGEST_PATIENCE:g} seconds")
    name, size = gang or ("", 0)
    if gang is not None and (not name or not name.isprintable() or len(name) > 255 or not 2 <= size <= _LARGEST_GANG):
        raise InvalidOption(f"gang={gang!r}: give a name and the number of its jobs, 2 to {_LARGEST_GANG}")
    needs = JobNeeds(
        resources=amounts,
        labels=check_labels(wanted.get("labels", {}), what="place: labels"),
        prefers=check_labels(wanted.get("prefers", {}), what="place: prefers"),
        patience=_PATIENCE if patience is None else patience,
        gang=name,
        gang_size=size,
    )
    return None if needs == JobNeeds() else needs


def fits(amounts: Amounts, free: Amounts) -> bool:
    """Return whether all amounts are free."""
    return all(amount <= free.get(name, 0.0) + _TINY for name, amount in amounts.items())


def add_amounts(one: Amounts, other: Amounts, *, sign: float = 1.0) -> dict[str, float]:
    """Return the sum of both amounts, or with `sign=-1` the first minus the second."""
    return {name: one.get(name, 0.0) + sign * other.get(name, 0.0) for name in {**one, **other}}


def has_labels(node: HostNode, labels: Mapping[str, str]) -> bool:
    """Return whether the node has all of these labels."""
    return labels.items() <= node.told.labels.items()


def left_over(amounts: Amounts, free: Amounts, capacity: Amounts) -> float:
    """Return the free shares of all resources after an allocation, added up.

    So GPUs are kept for jobs that need them.
    """
    return sum((free.get(name, 0.0) - amounts.get(name, 0.0)) / whole for name, whole in capacity.items() if whole)


def best_fit(amounts: Amounts, nodes: Iterable[HostNode]) -> HostNode | None:
    """Return the open node with enough room that has the least left over; of equal ones, the first by name.

    Returns None if no node has room.
    """
    able = [node for node in nodes if node.is_open and fits(amounts, node.free)]
    return min(able, key=lambda node: (left_over(amounts, node.free, node.told.capacity), node.name), default=None)


def reservable(placements: Sequence[Placement], nodes: Iterable[HostNode]) -> list[Placement]:
    """Return the placements that are possible, in order: on open nodes with the seen epoch, while there is room.

    A gang is placed completely or not at all. Nothing is placed beyond the free capacity.
    """
    there = {node.name: node for node in nodes if node.is_open}
    free = {name: node.free for name, node in there.items()}
    gangs: dict[tuple[str, int], list[Placement]] = {}
    for number, placement in enumerate(placements):
        gangs.setdefault((placement.gang, 0 if placement.gang else number), []).append(placement)
    found: list[Placement] = []
    for gang in gangs.values():
        left = dict(free)
        for placement in gang:
            node = there.get(placement.node)
            if node is None or node.epoch != placement.epoch or not fits(placement.amounts, left[node.name]):
                break
            left[node.name] = add_amounts(left[node.name], placement.amounts, sign=-1.0)
        else:
            free = left
            found += gang
    return found


def startable(placements: Mapping[_Job, Placement], ready: Collection[_Job]) -> dict[_Job, Placement]:
    """Return the placements whose jobs are ready, without gangs in which a job is not."""
    broken = {each.gang for job, each in placements.items() if each.gang and job not in ready}
    return {job: each for job, each in placements.items() if job in ready and each.gang not in broken}


def together(placements: Mapping[_Job, Placement]) -> list[list[_Job]]:
    """Return groups of jobs that are placed together: each gang, and each other job by itself."""
    units: dict[object, list[_Job]] = {}
    for job, each in placements.items():
        units.setdefault(each.gang or (job,), []).append(job)
    return list(units.values())


def capacity_of(nodes: Iterable[HostNode]) -> dict[str, float]:
    """Return the total capacity of those nodes that take jobs."""
    found: dict[str, float] = {}
    for node in nodes:
        if node.is_open and node.told.runs_jobs:
            for name, amount in node.told.capacity.items():
                found[name] = found.get(name, 0.0) + amount
    return found


def could_ever_fit(needs: JobNeeds, node: HostNode) -> bool:
    """Return whether the node would fit if it were empty, open and available."""
    return node.told.runs_jobs and has_labels(node, needs.labels) and fits(needs.amounts, node.told.capacity)


def why_unplaced(needs: JobNeeds, nodes: Sequence[HostNode]) -> tuple[str, bool]:
    """Return a sentence on why a job is on no node yet, and whether no known node can ever fit.

    If none can, the job is unschedulable: it waits for a new node.
    """
    running = [node for node in nodes if node.told.runs_jobs]
    wanted = amounts_text(needs.amounts)
    if not running:
        return "unschedulable: no node is known yet: start a worker there with --node", True
    labelled = [node for node in running if has_labels(node, needs.labels)]
    if not labelled:
        labels = ", ".join(f"{name}={value}" for name, value in needs.labels.items())
        return f"unschedulable: none of {len(running)} nodes has the labels {labels}", True
    able = [node for node in labelled if could_ever_fit(needs, node)]
    if not able:
        most = {name: max(node.told.capacity.get(name, 0.0) for node in labelled) for name in needs.amounts}
        return f"unschedulable: it needs {wanted}, and no node that fits has more than {amounts_text(most)}", True
    closed = [node for node in able if not node.is_open]
    if len(closed) == len(able):
        return f"all {len(able)} nodes that fit are closed: {_node_list(closed)}", False
    full = [node for node in able if node.is_open and not fits(needs.amounts, node.free)]
    if len(full) + len(closed) == len(able):
        return f"it needs {wanted}, and so much is free on none of the {len(able)} nodes that fit", False
    return f"there is room on {len(able) - len(full) - len(closed)} nodes: it is about to be placed", False


def _node_list(nodes: Sequence[HostNode]) -> str:
    names = ", ".join(f"{node.name} ({node.state})" for node in nodes[:_SHOWN])
    return names if len(nodes) <= _SHOWN else f"{names} and {len(nodes) - _SHOWN} others"
