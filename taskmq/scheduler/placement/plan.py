"""The plan of one moment. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from taskmq.model.nodes import HostNode, JobNeeds, Placement, add_amounts
from taskmq.model.resources import Amounts
from taskmq.scheduler.fairness import Caps
from taskmq.scheduler.placement.room import NodeRun, Room

__all__ = ["Candidate", "Plan", "plan_placements"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that waits for a node.

    Attributes:
        waited: for so many seconds.
        seconds: for how long it will probably run.
        is_first: it was never dispatched; a member of a gang that comes back goes by itself.
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
        """Of which queue's and tenant's gang it is."""
        return (self.queue, self.tenant, self.needs.gang) if self.is_first else ("", "", "")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done.

    Attributes:
        placements: in the order of the candidates, gangs at their first member.
        held: the job for which a node is held; "": none.
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
    """Which candidates go where.

    Args:
        candidates: in the order in which it is their turn.
        flights: jobs that run on the nodes, as far as that is known.
        now: seconds, by the clock of `flights`.
        held: for whom a node was held by the plan before: it goes first where there is room.
        most: of a queue and tenant no more jobs than this are placed, but for a gang, which goes whole; no bound
            where there is none here.
        caps: of pools, with what is placed already. What is planned is taken from them.
    """
    room = Room(nodes, now=now)
    found = Plan()
    # One that is above a cap is held no node.
    units = [unit for unit in _units(candidates, held) if caps is None or _is_within(unit, caps)]
    blocked = [unit[0] for unit in units if _is_blocked(unit, room)]
    oldest = next((one for one in blocked if one.job == held), None) or max(blocked, key=_waited, default=None)
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
        placements = _placed(unit, tried)
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
    """Single jobs, and gangs of which all members wait."""
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
    # Sorting keeps the order of all others.
    return sorted(units, key=lambda unit: unit[0].job != held)


def _is_within(unit: Sequence[Candidate], caps: Caps) -> bool:
    """Whether all of them together are within the caps of their pool."""
    wanted: Amounts = {}
    for one in unit:
        wanted = add_amounts(wanted, one.needs.amounts)
    return caps.has_room(unit[0].queue, unit[0].tenant, wanted)


def _is_blocked(unit: Sequence[Candidate], room: Room) -> bool:
    """Whether a job, single, has to wait for room."""
    one = unit[0]
    return len(unit) == 1 and not room.choices(one.needs) and room.could_fit(one.needs)


def _placed(unit: Sequence[Candidate], room: Room) -> list[Placement] | None:
    """Where all of them go; None where one has to wait."""
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


def _waited(one: Candidate) -> float:
    return one.waited
