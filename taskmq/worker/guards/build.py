"""The list of a worker's guards: the one place to add a guard."""

from collections.abc import Callable
from typing import Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.stores import Stores
from taskmq.worker.config import WorkerConfig
from taskmq.worker.guards.base import Guard, GuardRank, Guards
from taskmq.worker.guards.idempotency import IdempotencyGuard, StoredKeys
from taskmq.worker.guards.limits import PATIENCE, LimitsGuard, has_limits
from taskmq.worker.guards.occurrences import OccurrenceGuard
from taskmq.worker.guards.starts import StoredStartsGuard
from taskmq.worker.guards.uniqueness import UniqueGuard


class GuardSetup(msgspec.Struct, frozen=True):
    """Objects that guards are built from.

    Attributes:
        stores: the store of each capability.
        worker: the worker's name, shown as the owner of its guards' claims.
        lease: seconds until the claims of a run expire after its worker is gone.
        concurrency: slots of the worker.
    """

    app: TaskMQ
    stores: Stores
    worker: str
    lease: float
    concurrency: int


def _reactions(setup: GuardSetup) -> Guard | None:
    if not (awaited := setup.app.reactions.awaited_tasks):
        return None
    # Imported late, because few apps have reactions.
    from taskmq.worker.guards.reactions import ReactionGuard

    return ReactionGuard(setup.app, awaited)


def _occurrences(setup: GuardSetup) -> Guard | None:
    schedules = setup.stores.schedules
    return None if schedules is None else OccurrenceGuard(setup.app, schedules)


def _idempotency(setup: GuardSetup) -> Guard | None:
    claims, leases = setup.stores.claims, setup.stores.leases
    if claims is None or leases is None:
        return StoredKeys()
    return IdempotencyGuard(setup.app, claims, leases, worker=setup.worker, lease=setup.lease)


def _limits(setup: GuardSetup) -> Guard | None:
    limits = setup.stores.limits
    if not has_limits(setup.app):
        return None
    if limits is None:
        return StoredStartsGuard(setup.app.sessions.clock)
    # Only tests set a patience; their broker follows the virtual clock.
    patience = PATIENCE if setup.app.sessions.patience is None else 0.0
    return LimitsGuard(setup.app, limits, concurrency=setup.concurrency, lease=setup.lease, patience=patience)


def _uniqueness(setup: GuardSetup) -> Guard | None:
    claims = setup.stores.claims
    if claims is None or all(task.plan.unique is None for task in setup.app.tasks.values()):
        return None
    return UniqueGuard(claims)


GUARDS: Final[list[tuple[int, Callable[[GuardSetup], Guard | None]]]] = [
    (GuardRank.REACTIONS, _reactions),
    (GuardRank.OCCURRENCES, _occurrences),
    (GuardRank.IDEMPOTENCY, _idempotency),
    (GuardRank.LIMITS, _limits),
    (GuardRank.UNIQUENESS, _uniqueness),
]
"""Factories of guards by rank; a factory returns None if the app does not need the guard."""


def build_guards(app: TaskMQ, config: WorkerConfig, *, worker: str) -> Guards:
    """Create the guards of one worker."""
    setup = GuardSetup(app, app.sessions.current().stores, worker, config.lease, config.concurrency)
    return Guards((rank, guard) for rank, make in GUARDS if (guard := make(setup)) is not None)
