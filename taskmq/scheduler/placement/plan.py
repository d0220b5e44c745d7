"""Plans of placements. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from taskmq.model.nodes import HostNode, JobNeeds, Placement, add_amounts
from taskmq.model.resources import Amounts
from taskmq.scheduler.fairness import Caps
from taskmq.scheduler.placement.room import NodeRun, Room


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that waits for a node.

    Attributes:
        waited: seconds that it has waited.
        seconds: expected run time in seconds.
        is_first: whether it was never dispatched; a returning member of a gang is placed by itself.
    """

    job: str
    tenant: str
    task: str
    needs: JobNeeds
    waited: float = 0.0
    seconds: float = 1.0
    is_first: bool = True
    queue: str = ""

    @property
    def gang(self) -> tuple[str, str, str]:
        """Queue, tenant and name of its gang; empty if it has none."""
        return (self.queue, self.tenant, self.needs.gang) if self.is_first else ("", "", "")


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of placements.

    Attributes:
        placements: placements in the order of the candidates, gangs at their first member.
        held: job that a node is held for; "" if none.
    """

    placements: list[Placement] = field(default_factory=list[Placement])
    held: str = ""


def plan_placements(
    candidates: Sequence[Candidate],
    nodes: Iterable[HostNode],
    flights: Sequence[NodeRun] = (),
    *,
    now: float,
    held: str = "",
    most: Mapping[tuple[str, str], int] | None = None,
    caps: Caps | None = None,
) -> Plan:
    """Assign candidates to nodes.

    Args:
        candidates: candidates in order of their turns.
        flights: known jobs on the nodes.
        now: current time in seconds, by the clock of `flights`.
        held: job that the previous plan held a node for; it goes first if there is room.
        most: most jobs to place, by queue and tenant, except that a gang is placed as a whole; no limit for others.
        caps: caps of pools with current usage; planned amounts are added to it.
    """
    room = Room(nodes, now=now)
    found = Plan()
    # No node is held for a job above a cap.
    units = [unit for unit in _units(candidates, held) if caps is None or _is_within(unit, caps)]
    blocked = [unit[0] for unit in units if _is_blocked(unit, room)]
    oldest = next((one for one in blocked if one.job == held), None) or max(blocked, key=_waiting_time, default=None)
    if oldest is not None:
        room.hold_for(oldest.job, oldest.needs, flights)
    left = Counter(most or {})
    for unit in units:
        owner = (unit[0].queue, unit[0].tenant)
        if owner in left and left[owner] <= 0:
            continue
        if caps is not None and not _is_within(unit, caps):
            continue
        tried = room.copy() if len(unit) > 1 else room
        placements = _place_unit(unit, tried)
        if placements is not None:
            room = tried
            if owner in left:
                left[owner] -= len(unit)
            if caps is not None:
                for one in unit:
                    caps.take(one.queue, one.tenant, one.needs.amounts)
            found.placements.extend(placements)
    return Plan(found.placements, "" if oldest is None else oldest.job)


def _units(candidates: Sequence[Candidate], held: str) -> list[list[Candidate]]:
    """Group candidates into single jobs and complete gangs."""
    gangs: dict[tuple[str, str, str], list[Candidate]] = {}
    for one in candidates:
        if one.gang[2]:
            gangs.setdefault(one.gang, []).append(one)
    units: list[list[Candidate]] = []
    for one in candidates:
        if not one.gang[2]:
            units.append([one])
        elif (members := gangs.pop(one.gang, None)) is not None and len(members) >= one.needs.gang_size:
            units.append(members)
    # A stable sort keeps the order of all others.
    return sorted(units, key=lambda unit: unit[0].job != held)


def _is_within(unit: Sequence[Candidate], caps: Caps) -> bool:
    """Whether all jobs of the unit together are within the caps of their pools."""
    wanted: Amounts = {}
    for one in unit:
        wanted = add_amounts(wanted, one.needs.amounts)
    return caps.has_room(unit[0].queue, unit[0].tenant, wanted)


def _is_blocked(unit: Sequence[Candidate], room: Room) -> bool:
    """Whether the unit is a single job that has to wait for room."""
    one = unit[0]
    return len(unit) == 1 and not room.choices(one.needs) and room.could_fit(one.needs)


def _place_unit(unit: Sequence[Candidate], room: Room) -> list[Placement] | None:
    """Assign all jobs of the unit to nodes; None if one of them has to wait."""
    found: list[Placement] = []
    for one in unit:
        needs = one.needs
        choices: Sequence[HostNode] = ()
        if needs.prefers:
            wanted = {**needs.labels, **needs.prefers}
            choices = room.choices(needs, labels=wanted, job=one.job, seconds=one.seconds)
        if not choices and (not needs.prefers or one.waited >= needs.patience):
            choices = room.choices(needs, job=one.job, seconds=one.seconds)
        if (node := room.best(needs, choices)) is None:
            return None
        amounts = one.needs.amounts
        room.take(node.name, amounts, seconds=one.seconds)
        gang = "" if len(unit) == 1 else ":".join(one.gang)
        found.append(
            Placement(
                job=one.job,
                tenant=one.tenant,
                task=one.task,
                node=node.name,
                epoch=node.epoch,
                amounts=amounts,
                gang=gang,
            )
        )
    return found


def _waiting_time(one: Candidate) -> float:
    return one.waited
