"""Steps of workflows: claimed before they run, ended before they are settled.

    acquire: claim the node -- begun ---> its missing arguments -> run -> release: end the node, publish ready steps
                             +- busy ---> back to the broker, poll again later
                             +- ended --> publish what may be left, and end as it ended, without a run
                             +- unknown > dead: without the state its workflow is unknown

A redelivered message was lost by its last worker, so its run is taken over at once, unless it continues in this
worker. Every other run holds a lease, which is renewed. The outcome of a run that was taken over does not count: its
token is refused.
"""

import logging
import random
import secrets
from datetime import timedelta
from typing import Any, Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.client.producer import AppServices
from taskmq.contracts.stores import ErrorRecord, ResultRecord
from taskmq.contracts.stores.flows import BegunNode, BusyNode, EndedNode, NodeState
from taskmq.durable.lease_keeper import LeaseKeeper
from taskmq.errors import FlowNotFound, TaskMQError, UnsupportedFeature
from taskmq.model.envelope import JSON, Envelope
from taskmq.model.outcome import AlreadyDone, Cancelled, Dead, Outcome, Snoozed
from taskmq.model.states import JobState
from taskmq.tasks.task import Task
from taskmq.worker.attempt import Attempt, Permit
from taskmq.workflow.model.calls import NodeCall, decode_call, decode_failure, encode_failure, insert_values
from taskmq.workflow.publisher import FlowPublisher, flow_store
from taskmq.workflow.values import encode_tree, load_trees

__all__ = ["WorkflowGuard", "WorkflowRefusal"]

_log = logging.getLogger("taskmq.worker")

_LEASE: Final = 30.0
_LONGEST_WAIT: Final = 5.0
_STATES: Final = {
    JobState.SUCCEEDED: NodeState.SUCCEEDED,
    JobState.FAILED: NodeState.FAILED,
    JobState.CANCELLED: NodeState.CANCELLED,
}


class WorkflowGuard:
    """Admits each step of a workflow once at a time, and records its end.

    Args:
        worker: the worker's name, shown as the owner of its runs.
        lease: seconds until another worker may take over a run that is not renewed.
    """

    def __init__(self, app: TaskMQ, *, worker: str, lease: float = _LEASE) -> None:
        self._services = AppServices(app.producer, app.jobs, app.tasks.dependencies)
        self._store = flow_store(app.sessions.current())
        # A claim of this owner that it does not hold was not answered, or failed in preparation: it may claim again.
        self._owner = f"{worker} {secrets.token_hex(8)}"
        self._lease = lease
        self._held: dict[tuple[str, str], _NodeRun] = {}
        self._keeper = LeaseKeeper("runs of steps of workflows", seconds=lease, renew=self._renew)

    def concerns_task(self, task: Task[..., Any]) -> bool:  # noqa: ARG002 - a message says that it is a step
        """See `Guard`."""
        return False

    def concerns(self, attempt: Attempt) -> bool:
        """Return whether the job is a step of a flow in the state; those of runs are ordinary jobs of the store."""
        return attempt.envelope.flow is not None and attempt.envelope.store is None

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        flow_id, _, key = (attempt.envelope.flow or "").rpartition("/")
        if (flow_id, key) in self._held:
            # A second copy of the message, or a redelivery while the run that it began continues.
            return _later(_LONGEST_WAIT)
        # Held from here on, so that no other copy is admitted while this one waits for its answer.
        run = self._held[flow_id, key] = _NodeRun(self, attempt, flow_id, key)
        try:
            answer = await self._store.start(
                flow_id,
                key,
                owner=self._owner,
                seconds=self._lease,
                takes_over=attempt.delivery.redelivered,
            )
            match answer:
                case BegunNode(token, call):
                    run.token = token
                    await self._prepare(run, decode_call(call))
                    self._keeper.watch()
                    return run
                case BusyNode(left):
                    outcome: Outcome = _later(left)
                case EndedNode():
                    await run.publisher().resume()
                    outcome = _outcome_of_end(attempt, answer)
                case _:
                    outcome = Dead(
                        "rejected",
                        FlowNotFound(
                            f"workflow {flow_id} is not in the state (any more), so its step {key} is not run"
                        ),
                    )
        except BaseException:
            self.forget(run)
            raise
        self.forget(run)
        return outcome

    def forget(self, run: "_NodeRun") -> None:
        """Stop holding the run's node."""
        if self._held.get((run.flow_id, run.key)) is run:
            del self._held[run.flow_id, run.key]

    async def _prepare(self, run: "_NodeRun", call: NodeCall) -> None:
        """Add the arguments that the message does not carry."""
        attempt = run.attempt
        if call.inputs:
            content_type = attempt.delivery.content_type or JSON
            trees = await load_trees(self._store, run.flow_id, [one.source for one in call.inputs])
            values = [(one.to, encode_tree(tree, content_type)) for one, tree in zip(call.inputs, trees, strict=True)]
            args, kwargs = insert_values(call.args, call.kwargs, values, content_type)
            attempt.envelope = msgspec.structs.replace(attempt.envelope, args=args, kwargs=kwargs, blob=None)
        if attempt.fence is None:
            attempt.fence = (attempt.envelope.flow or "", run.token)

    async def _renew(self) -> bool:
        for run in [run for run in self._held.values() if run.token]:
            await self._store.renew(run.flow_id, run.key, token=run.token, seconds=self._lease)
        return bool(self._held)

    async def release(self, run: "_NodeRun", record: ResultRecord | None) -> bool:
        """End the run, and with a record its node; return False if that does not count."""
        if record is None:
            await self._store.release(run.flow_id, run.key, token=run.token)
            self.forget(run)
            return True
        taken = await self._store.end(
            run.flow_id,
            run.key,
            token=run.token,
            state=_STATES[record.state],
            value=_value(record),
            taker=run.key,
            lease=self._lease,
        )
        if taken is not None:
            await run.publisher().publish(taken)
        self.forget(run)
        return taken is not None

    def publisher(self, run: "_NodeRun") -> FlowPublisher:
        content_type = run.attempt.delivery.content_type or JSON
        return FlowPublisher(
            self._services, run.flow_id, taker=run.key, content_type=content_type, parent=run.attempt.job_id
        )


class _NodeRun:
    """A run of a step."""

    __slots__ = ("_envelope", "_guard", "_task", "attempt", "flow_id", "key", "token")

    def __init__(self, guard: WorkflowGuard, attempt: Attempt, flow_id: str, key: str) -> None:
        self._guard = guard
        self._envelope: Envelope = attempt.envelope
        self._task = attempt.task
        self.attempt = attempt
        self.flow_id = flow_id
        self.key = key
        self.token = 0

    def publisher(self) -> FlowPublisher:
        return self._guard.publisher(self)

    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:  # noqa: ARG002 - the record says it
        counts = await self._guard.release(self, record)
        # A delivery that stays in a shard is admitted again, with the arguments that it carries.
        self.attempt.envelope, self.attempt.task = self._envelope, self._task
        return counts


class WorkflowRefusal:
    """Replaces the guard without a state."""

    def concerns_task(self, task: Task[..., Any]) -> bool:  # noqa: ARG002 - a message says that it is a step
        """See `Guard`."""
        return False

    def concerns(self, attempt: Attempt) -> bool:
        return attempt.envelope.flow is not None and attempt.envelope.store is None

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        return Dead(
            "rejected",
            UnsupportedFeature(
                f"job {attempt.job_id} of task {attempt.envelope.task} is a step of a workflow, which needs a state, "
                "and this worker has none: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, then replay it"
            ),
        )


def _later(left: float) -> Snoozed:
    return Snoozed(timedelta(seconds=min(left, _LONGEST_WAIT) * random.uniform(1.0, 1.2) + 0.05))


def _value(record: ResultRecord) -> bytes:
    if record.state is JobState.SUCCEEDED:
        return record.value
    if record.state is JobState.CANCELLED:
        return (record.error.message if record.error else "").encode(errors="replace")
    return encode_failure(record.error or ErrorRecord(type_name="", message="", traceback=""))


def _outcome_of_end(attempt: Attempt, ended: EndedNode) -> Outcome:
    """Return the outcome of a job whose node ended: once more, if a worker died before it settled it."""
    match ended.state:
        case NodeState.SUCCEEDED:
            return AlreadyDone(attempt.delivery.content_type or JSON, ended.value)
        case NodeState.FAILED:
            error = decode_failure(ended.value)
            return Dead(
                "error", _error(error) if error else TaskMQError("its step of the workflow has failed before")
            )
        case NodeState.CANCELLED:
            return Cancelled(ended.value.decode(errors="replace"))
        case _:
            return Cancelled(f"its step of the workflow has ended before: {ended.state}")


def _error(kept: ErrorRecord) -> TaskMQError:
    """Return an error with the name and message of a stored one."""
    module, _, name = kept.type_name.rpartition(".")
    kind: type[TaskMQError] = type(name or "Error", (TaskMQError,), {"__module__": module or "builtins"})
    return kind(kept.message)
