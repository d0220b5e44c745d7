"""Which guards a worker has."""

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.worker.config import WorkerConfig
from taskmq.worker.guards.base import Guard, Guards
from taskmq.worker.guards.idempotency import IdempotencyGuard, KeyRefusal
from taskmq.worker.guards.limits import LimitsGuard, has_limits
from taskmq.worker.guards.occurrences import OccurrenceGuard
from taskmq.worker.guards.reactions import ReactionGuard
from taskmq.worker.guards.uniqueness import UniqueGuard
from taskmq.worker.guards.workflow import WorkflowGuard, WorkflowRefusal

__all__ = ["build_guards"]


def build_guards(
    app: TaskMQ, *, worker: str, lease: float = WorkerConfig().lease, concurrency: int = WorkerConfig().concurrency
) -> Guards:
    """The guards of one worker, in the order in which they are passed.

    Args:
        concurrency: slots of the worker.
        lease: seconds until what a run holds passes on when its worker is gone.
    """
    guards: list[Guard] = []
    state = app.sessions.current().state
    if awaited := app.reactions.awaited:
        # The first one, and so the last that is left: what others refuse has not ended.
        guards.append(ReactionGuard(app, awaited))
        for task in (app.tasks[name] for name in awaited & app.tasks.keys()):
            task.plan = replace(task.plan, is_guarded=True)
    # Early: what the others answer is an end that the workflow has to know.
    guards.append(WorkflowRefusal() if state is None else WorkflowGuard(app, worker=worker))
    if state is not None:
        # The first one: a duplicate that is answered below has ended for it, too.
        guards.append(OccurrenceGuard(app, state))
    guards.append(KeyRefusal() if state is None else IdempotencyGuard(app, state, worker=worker, lease=lease))
    if state is not None and has_limits(app):
        # The last one: what is not run must not take a start from others.
        guards.append(LimitsGuard(app, state.limits, concurrency=concurrency, lease=lease))
    if state is not None and any(task.plan.unique is not None for task in app.tasks.values()):
        # Where it frees a key it never turns the run back; whoever comes behind it might, and the job would wait
        # without its key.
        guards.append(UniqueGuard(state.claims))
    return Guards(guards)
