"""Checks and preparations before a worker starts."""

import os
import socket
from collections.abc import Sequence
from dataclasses import replace

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Broker
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.executors import CoroutineExecutor, ProcessExecutor, ThreadExecutor
from taskmq.model.history.logs import read_level
from taskmq.model.nodes import LOST_AFTER_MS, SLOTS, NodeTold
from taskmq.model.resources import GPU, PROCESS, amounts_text
from taskmq.model.topology import MOST_LANES, WorkQueue, lane_queue, node_queue
from taskmq.model.units import did_you_mean
from taskmq.options.limits import check_shared
from taskmq.options.task_options import ExecutorKind
from taskmq.run.execution import Executor
from taskmq.run.log_capture import CaptureSettings
from taskmq.version import VERSION
from taskmq.worker.config import WorkerConfig
from taskmq.worker.host.resources import capacity, devices
from taskmq.worker.intake.ordered_shards import LONGEST_HOLD
from taskmq.worker.intake.resources import ResourcePool


def queues_of(app: TaskMQ, config: WorkerConfig) -> list[WorkQueue]:
    """Return the queues to consume.

    Raises:
        InvalidOption: there are none; or no task of the app uses one of them, without `force`.
    """
    known = [queue.name for queue in app.tasks.queues]
    if known and not config.force and (unknown := [name for name in config.queues if name not in known]):
        raise InvalidOption(
            f"no task of the app uses queue {unknown[0]!r}: {did_you_mean(unknown[0], known)} "
            "(--force consumes it anyway)"
        )
    # The node's queue first: jobs that were placed there have their resources there.
    own = [app.producer.queue(node_queue(config.node))] if config.node else []
    if config.queues:
        return own + [app.producer.queue(name) for name in dict.fromkeys(config.queues)]
    if not app.tasks.queues:
        raise InvalidOption(
            "the app has no tasks, so there is no queue to consume: name the modules that define them, "
            "TaskMQ(include=[...]), or name queues"
        )
    return own + app.tasks.queues


async def with_former_lanes(broker: Broker, queues: Sequence[WorkQueue]) -> list[WorkQueue]:
    """Return the same queues; those with lanes have as many as exist at the broker, if that is more.

    If there were more lanes once, delayed jobs and retries return to the lanes that they left.

    Raises:
        BrokerUnavailable: the broker cannot be asked.
    """
    found: list[WorkQueue] = []
    for queue in queues:
        count = queue.lanes
        # Lanes are declared all at once: after a missing one there are no others.
        while count is not None and count < MOST_LANES and await broker.stats([lane_queue(queue.name, count)]):
            count += 1
        found.append(queue if count == queue.lanes else replace(queue, lanes=count))
    return found


def node_of(config: WorkerConfig) -> NodeTold | None:
    """Return the report of the worker's node; None if it has none."""
    if not config.node:
        return None
    given = {name: amount * config.processes for name, amount in (config.resources or {}).items() if name != GPU}
    if GPU in (config.resources or {}):
        given[GPU] = (config.resources or {})[GPU]
    slots = {SLOTS: float(config.concurrency * config.processes)}
    found = capacity(given, processes=1) | slots | {name: given[name] for name in given if name == SLOTS}
    return NodeTold(
        name=config.node,
        address=socket.gethostname(),
        capacity=found,
        labels=config.node_labels,
        version=VERSION,
        lost_after=LOST_AFTER_MS,
        runs_jobs=True,
    )


def check_tasks(app: TaskMQ) -> None:
    """Check that a worker can run the app's tasks.

    Raises:
        InvalidOption: two tasks define one limit differently.
        UnsupportedFeature: a task needs what the app has not configured.
    """
    check_shared([(task.name, limit) for task in app.tasks.values() for limit in task.limits])
    if app.sessions.store_url is None:
        # Otherwise no job whose end a reaction waits for could be settled.
        app.reactions.check_lanes(at_beat=False)
    if app.sessions.state_url is None:
        if app.sessions.delay == "state":
            raise UnsupportedFeature("delay='state' needs a state, and the app has none")
        wanting = sorted(task.name for task in app.tasks.values() if task.plan.result)
        if wanting:
            raise UnsupportedFeature(f"result=True needs a state, and the app has none: {', '.join(wanting)}")
        # The store decides these for stored jobs, and senders refuse the others.
        if app.sessions.store_url is None:
            if keyed := sorted(task.name for task in app.tasks.values() if task.plan.idempotency.maker is not None):
                raise UnsupportedFeature(
                    "idempotency_key needs a state or, for submitted jobs, a store, and the app has none: "
                    f"{', '.join(keyed)}"
                )
            if limited := sorted(task.name for task in app.tasks.values() if task.limits):
                raise UnsupportedFeature(
                    "rate_limit and concurrency need a state or, for submitted jobs, a store, and the app has none: "
                    f"{', '.join(limited)}"
                )
        # The store knows which stored jobs have keys.
        sent = [task for task in app.tasks.values() if task.call_plan.lane != "store"]
        if unique := sorted(task.name for task in sent if task.plan.unique is not None):
            raise UnsupportedFeature(f"unique needs a state, and the app has none: {', '.join(unique)}")


def resources_for(app: TaskMQ, config: WorkerConfig, queues: Sequence[WorkQueue]) -> ResourcePool:
    """Return the worker's resources for tasks that need more than a slot.

    Raises:
        InvalidOption: a task of the queues needs more than that, so it could never run here.
    """
    names = {queue.name for queue in queues}
    if config.node:
        names |= {queue.name for queue in app.tasks.queues if queue.placed}
    if unknown := sorted((config.queue_slots.keys() | config.queue_shares.keys()) - names):
        raise InvalidOption(f"slots or shares are set for queues that are not consumed: {', '.join(unknown)}")
    if min((1, *config.queue_slots.values(), *config.queue_shares.values())) < 1:
        raise InvalidOption("slots and shares of queues must be at least 1")
    found = capacity(config.resources, processes=config.processes)
    plans = [task.plan for task in app.tasks.values() if task.queue in names and task.plan.needs]
    own = {plan.one_of: float(plan.worker_concurrency) for plan in plans if plan.worker_concurrency is not None}
    own[PROCESS] = float(config.process_slots)
    pool = ResourcePool(found | own, devices=devices(os.environ), patience=config.starvation_limit)
    for plan in plans:
        if lacking := pool.lacks(plan.needs or {}):
            raise InvalidOption(
                f"task {plan.name} needs {amounts_text(plan.needs or {})} and can never run here: this worker has "
                f"{amounts_text(lacking)}; see --resources, or give the task a separate queue"
            )
    if config.processes > 1 and any(GPU in (plan.needs or {}) for plan in plans):
        raise InvalidOption(
            "several worker processes would hand out the same GPUs: run one process each, with CUDA_VISIBLE_DEVICES"
        )
    return pool


def longest_run(app: TaskMQ, queue: WorkQueue) -> float | None:
    """Return the maximum seconds a delivery may stay unsettled; None if a task of the queue has no time limit."""
    longest = 0.0
    for task in app.tasks.values():
        if task.queue == queue.name:
            if task.plan.timeout is None:
                return None
            longest = max(longest, task.plan.timeout)
    if not longest:
        return None
    return longest if queue.ordered is None else longest + LONGEST_HOLD


def capture_settings(config: WorkerConfig) -> CaptureSettings | None:
    """Return the settings of log capture; None if it is off."""
    if config.capture_logs == "off":
        return None
    return CaptureSettings(read_level(config.capture_logs), output=config.capture_output, most=config.log_lines)


def executors_for(app: TaskMQ, target: str, config: WorkerConfig) -> dict[ExecutorKind, Executor]:
    """Create one executor of each kind that the app's tasks use.

    Args:
        target: `module:attribute` of the app; "" where it is unknown.

    Raises:
        UnsupportedFeature: a task runs in a separate process, which could not find the app.
    """
    kinds = {task.plan.executor for task in app.tasks.values()}
    executors: dict[ExecutorKind, Executor] = {}
    if "async" in kinds:
        executors["async"] = CoroutineExecutor()
    if "thread" in kinds:
        executors["thread"] = ThreadExecutor()
    if "process" in kinds:
        if not target:
            raise UnsupportedFeature("executor='process' needs a worker that knows where its app is: taskmq worker")
        processes = executors["process"] = ProcessExecutor(
            target,
            size=config.process_slots,
            url=app.sessions.url,
            state=app.sessions.state_url,
            store=app.sessions.store_url,
            max_tasks=config.max_tasks_per_child,
            max_memory=config.max_memory_per_child,
            capture=capture_settings(config),
        )
        processes.warm()
    return executors
