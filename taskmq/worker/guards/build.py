"""Which guards a worker has: the one list to add a guard to."""

from collections.abc import Callable
from typing import Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.stores import Stores
from taskmq.worker.config import WorkerConfig
from taskmq.worker.guards.base import Guard, GuardRank, Guards
from taskmq.worker.guards.idempotency import IdempotencyGuard, KeyRefusal
from taskmq.worker.guards.limits import PATIENCE, LimitsGuard, has_limits
from taskmq.worker.guards.occurrences import OccurrenceGuard
from taskmq.worker.guards.reactions import ReactionGuard
from taskmq.worker.guards.uniqueness import UniqueGuard
from taskmq.worker.guards.workflow import WorkflowGuard, WorkflowRefusal

__all__ = ["GUARDS", "GuardSetup", "build_guards"]


class GuardSetup(msgspec.Struct, frozen=True):
    """What guards are made from.

    Attributes:
        stores: what serves each capability.
        worker: the worker's name, shown as the owner of what its guards hold.
        lease: seconds until what a run holds passes on when its worker is gone.
        concurrency: slots of the worker.
    """

    app: TaskMQ
    stores: Stores
    worker: str
    lease: float
    concurrency: int


def _reactions(setup: GuardSetup) -> Guard | None:
    awaited = setup.app.reactions.awaited
    return ReactionGuard(setup.app, awaited) if awaited else None


def _workflows(setup: GuardSetup) -> Guard | None:
    return WorkflowRefusal() if setup.stores.flows is None else WorkflowGuard(setup.app, worker=setup.worker)


def _occurrences(setup: GuardSetup) -> Guard | None:
    schedules = setup.stores.schedules
    return None if schedules is None else OccurrenceGuard(setup.app, schedules)


def _idempotency(setup: GuardSetup) -> Guard | None:
    claims, leases = setup.stores.claims, setup.stores.leases
    if claims is None or leases is None:
        return KeyRefusal()
    return IdempotencyGuard(setup.app, claims, leases, worker=setup.worker, lease=setup.lease)


def _limits(setup: GuardSetup) -> Guard | None:
    limits = setup.stores.limits
    if limits is None or not has_limits(setup.app):
        return None
    # Results are waited for patiently in tests only, whose broker goes by the clock that a test moves.
    patience = PATIENCE if setup.app.sessions.patience is None else 0.0
    return LimitsGuard(setup.app, limits, concurrency=setup.concurrency, lease=setup.lease, patience=patience)


def _uniqueness(setup: GuardSetup) -> Guard | None:
    claims = setup.stores.claims
    if claims is None or all(task.plan.unique is None for task in setup.app.tasks.values()):
        return None
    return UniqueGuard(claims)


GUARDS: Final[list[tuple[int, Callable[[GuardSetup], Guard | None]]]] = [
    (GuardRank.REACTIONS, _reactions),
    (GuardRank.WORKFLOWS, _workflows),
    (GuardRank.OCCURRENCES, _occurrences),
    (GuardRank.IDEMPOTENCY, _idempotency),
    (GuardRank.LIMITS, _limits),
    (GuardRank.UNIQUENESS, _uniqueness),
]
"""By rank: what makes the guard, or None where the app does not need it."""


def build_guards(app: TaskMQ, config: WorkerConfig, *, worker: str) -> Guards:
    """The guards of one worker."""
    setup = GuardSetup(app, app.sessions.current().stores, worker, config.lease, config.concurrency)
    return Guards((rank, guard) for rank, make in GUARDS if (guard := make(setup)) is not None)
