"""Actions that only listed modules may take."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from tests.house.tree import Module, classes, functions, modules, nodes

# `settle` settles deliveries. Everything else here is an exception with its reason.
_SETTLES: dict[str, str] = {
    "taskmq/beat/inbox.py": "a message whose job is confirmed, or that counts in the state",
    "taskmq/beat/topics.py": "the beat consumes triggers and reports itself",
    "taskmq/operations/dead_letters/browse.py": "a dead letter that is deleted",
    "taskmq/operations/dead_letters/replay.py": "a dead letter whose copy the broker has confirmed",
    "taskmq/operations/queue_moves.py": "a message whose copy in another queue the broker has confirmed",
    "taskmq/scheduler/reports/consumer.py": "the scheduler applies the reports of workers",
    "taskmq/worker/settlement/reports.py": "a job of the store that was told is settled when that is confirmed",
    "taskmq/testing/store_run.py": "the scheduler of a test applies the reports of its worker",
    "taskmq/testing/flaky_broker.py": "forwards to the broker that it makes fail",
    "taskmq/worker/intake/ordered_shards.py": "goes back before a run has begun",
    "taskmq/worker/intake/returns.py": "goes back after a pause, because nothing could be made of it",
    "taskmq/worker/intake/slots.py": "goes back before a run has begun, or when a run cannot be stopped",
    "taskmq/worker/long_runs/guard.py": "the state's lease stands in for the delivery of a long run",
    "taskmq/worker/long_runs/detached_runs.py": "the scheduler stands in for the delivery of a long run",
    "taskmq/worker/long_runs/leased_delivery.py": "the state's lease stands in for the delivery of a long run",
    "taskmq/worker/run/fast_path.py": "a run that needs nothing is settled without a coroutine",
    "taskmq/worker/run/processor.py": "a letter that nobody can read is dropped once it is kept",
    "taskmq/worker/settlement/last_resort.py": "a job that gets no end before the worker stops",
    "taskmq/worker/settlement/permits.py": "an outcome that does not count goes back",
    "taskmq/worker/settlement/settle.py": "the place",
    "taskmq/worker/settlement/stored_jobs.py": "a job of the store whose report is confirmed",
    "taskmq/worker/intake/parcels.py": "a parcel, with the last of its jobs",
    "taskmq/worker/run/thread_runs.py": "a run of a thread that needs nothing is settled without a coroutine",
}
# A task without an owner is lost when it fails: each of these awaits or cancels the tasks that it starts.
_STARTS_TASKS: set[str] = {
    "brokers/taskmq_local/broker/broker.py",
    "brokers/taskmq_local/database/maintenance.py",
    "brokers/taskmq_local/memory/broker.py",
    "brokers/taskmq_local/state/state.py",
    "brokers/taskmq_rabbitmq/amqp/resolver.py",
    "brokers/taskmq_rabbitmq/broker.py",
    "brokers/taskmq_rabbitmq/consume/browse.py",
    "brokers/taskmq_rabbitmq/consume/consumer.py",
    "brokers/taskmq_rabbitmq/consume/letter_queue.py",
    "brokers/taskmq_rabbitmq/consume/listener.py",
    "brokers/taskmq_rabbitmq/consume/queue_consumer.py",
    "brokers/taskmq_rabbitmq/consume/watchdog.py",
    "brokers/taskmq_rabbitmq/publish/broadcast.py",
    "brokers/taskmq_rabbitmq/publish/publisher.py",
    "brokers/taskmq_rabbitmq/publish/queue_repairs.py",
    "contrib/taskmq_aio_pika/source.py",
    "contrib/taskmq_redis/link/pipeline.py",
    "contrib/taskmq_redis/link/pubsub.py",
    "contrib/taskmq_redis/link/sentinel.py",
    "contrib/taskmq_redis/state.py",
    "contrib/taskmq_redis/stores/results.py",
    "contrib/taskmq_s3/blobs.py",
    "taskmq/app_api/pools.py",
    "taskmq/beat/beat.py",
    "taskmq/beat/reactor.py",
    "taskmq/cli/processes/top.py",
    "taskmq/client/bulk.py",
    "taskmq/client/portal.py",
    "taskmq/client/session.py",
    "taskmq/demo/bench.py",
    "taskmq/demo/run.py",
    "taskmq/durable/lease_keeper.py",
    "taskmq/durable/service.py",
    "taskmq/durable/task_set.py",
    "taskmq/events/stream.py",
    "taskmq/executors/process.py",
    "taskmq/executors/spawned.py",
    "taskmq/jobs/handle.py",
    "taskmq/jobs/watch.py",
    "taskmq/scheduler/history/listener.py",
    "taskmq/supervisor/child_process.py",
    "taskmq/supervisor/process_slot.py",
    "taskmq/supervisor/supervisor.py",
    "taskmq/testing/runner.py",
    "taskmq/testing/virtual_run.py",
    "taskmq/worker/child.py",
    "taskmq/worker/host/event_loop.py",
    "taskmq/worker/intake/ordered_shards.py",
    "taskmq/worker/reporter.py",
    "taskmq/worker/run/journal_service.py",
    "taskmq/worker/run/poison.py",
    "taskmq/worker/run/stored_journals.py",
    "taskmq/worker/run/task_pool.py",
}
# The plan of a task belongs to its app: two workers of one process share it.
_WRITES_PLANS: dict[str, str] = {
    "taskmq/tasks/function.py": "its own, at its definition",
    "taskmq/testing/virtual_run.py": "that of a copy",
}
# Names of headers and keys are part of stored data and of the wire format.
_NAMES_HEADERS: set[str] = {
    # In SQL, which moves messages by itself.
    "brokers/taskmq_local/database/tables.py",
    "taskmq/model/headers.py",
}
_NAMES_KEYS: set[str] = {"taskmq/model/keys.py"}
# Only these modules create messages: every sent job passes the middleware, its task's defaults, the tenant and
# `unique`.
_MAKES_MESSAGES: dict[str, str] = {
    "taskmq/client/delayed.py": "what waited in the state, as it was",
    "taskmq/client/producer.py": "the one producer",
    "taskmq/contracts/republish.py": "a delivery, once more",
    "taskmq/operations/dead_letters/replay.py": "a dead letter, once more; another client may have sent it",
    "taskmq/scheduler/invitations/messages.py": "an invitation to a job that the store has taken from the producer",
    "taskmq/scheduler/invitations/publisher.py": "a report of work that was done before",
    "taskmq/scheduler/reports/letters.py": "a letter for people, no job",
    "taskmq/worker/run_logs/lines.py": "lines of a log, no job",
    "taskmq/worker/services/run_recorder.py": "reports, no job",
    "taskmq/worker/settlement/reports.py": "reports, no job",
}
_MAKES_ENVELOPES: dict[str, str] = {
    "taskmq/executors/child.py": "the context of a run in a process of its own",
    "taskmq/run/context.py": "the context of a task that is called without a worker",
    "taskmq/tasks/envelope.py": "a call, for the producer",
}


def test_deliveries_are_settled_only_in_listed_modules() -> None:
    assert _modules_that(_settles) == set(_SETTLES)


def _settles(module: Module) -> bool:
    return module.name.startswith("taskmq.") and _calls(module, {"ack", "ack_confirmed", "requeue"})


def test_asyncio_tasks_are_started_only_in_listed_modules() -> None:
    assert _modules_that(lambda module: _calls(module, {"create_task", "ensure_future"})) == _STARTS_TASKS


def test_header_names_are_written_only_in_listed_modules() -> None:
    assert _modules_that(lambda module: _says(module, lambda text: "x-taskmq-" in text)) == _NAMES_HEADERS


def test_the_names_of_keys_are_written_in_one_module() -> None:
    kinds = tuple(_kinds_of_keys())

    assert {"once:", "lock:", "partition:", "mark:", "members:"} <= set(kinds)
    assert _modules_that(lambda module: _says(module, lambda text: text.startswith(kinds))) == _NAMES_KEYS


def _kinds_of_keys() -> Iterator[str]:
    """Return the prefix of the keys of one kind: `once:`."""
    (keys,) = [module for module in modules() if module.where in _NAMES_KEYS]
    for node in nodes(keys.tree, ast.Constant):
        match node:
            # The prefix of all derived ids also starts the command's output lines.
            case ast.Constant(value=str(text)) if re.fullmatch("[a-z]+:", text) and text != "taskmq:":
                yield text
            case _:
                pass


def test_the_plan_of_a_task_is_written_only_at_its_definition() -> None:
    assert _modules_that(_writes_a_plan) == set(_WRITES_PLANS)


def _writes_a_plan(module: Module) -> bool:
    return any(node.attr == "plan" and isinstance(node.ctx, ast.Store) for node in nodes(module.tree, ast.Attribute))


def test_messages_and_envelopes_are_created_only_in_listed_modules() -> None:
    assert _modules_that(lambda module: _makes(module, "Outgoing")) == set(_MAKES_MESSAGES)
    assert _modules_that(lambda module: _makes(module, "Envelope")) == set(_MAKES_ENVELOPES)


def _makes(module: Module, name: str) -> bool:
    return any(isinstance(node.func, ast.Name) and node.func.id == name for node in nodes(module.tree, ast.Call))


def _says(module: Module, fits: Callable[[str], bool]) -> bool:
    docstrings = {
        id(node.body[0].value)
        for node in (module.tree, *nodes(module.tree, ast.ClassDef), *functions(module.tree))
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    return any(
        isinstance(node.value, str) and fits(node.value) and id(node) not in docstrings
        for node in nodes(module.tree, ast.Constant)
    )


def _modules_that(do: object) -> set[str]:
    assert callable(do)
    return {module.where for module in modules() if not module.is_suite and do(module)}


def _calls(module: Module, names: set[str]) -> bool:
    return any(
        isinstance(node.func, ast.Attribute) and node.func.attr in names for node in nodes(module.tree, ast.Call)
    )


def test_a_protocol_outside_the_contracts_has_two_implementations() -> None:
    """Exceptions are listed here with their implementers: users, or an adapter."""
    lonely = {name for name, count in _implementations().items() if count < 2}

    assert lonely == _ONE_IMPLEMENTATION


_ONE_IMPLEMENTATION: set[str] = {
    # app.jobs, whose three modules are above the handles that call it
    "taskmq.client.job_service.JobService",
    "taskmq.client.job_service.Submitter",
    # tasks, which become steps of workflows and are above them
    "taskmq.workflow.step_call.StepTask",
    # the worker, which stores the logs of runs and is above the executors
    "taskmq.executors.process.ProcessLines",
    # the worker, which starts the service and is above it
    "taskmq.worker.services.commands.CommandTarget",
}


def _implementations() -> dict[str, int]:
    """Return the number of classes with all methods of each core Protocol outside the contracts."""
    counts: dict[str, int] = {}
    members: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        for found in classes(module):
            members[f"{module.name}.{found.name}"] = _members(found)
    for module in modules():
        if not module.name.startswith("taskmq.") or module.name.startswith("taskmq.contracts"):
            continue
        for found in classes(module):
            if any(ast.unparse(base).split("[")[0].split(".")[-1] == "Protocol" for base in found.bases):
                name = f"{module.name}.{found.name}"
                wanted = members[name]
                counts[name] = sum(wanted <= others for other, others in members.items() if other != name)
    return counts


def _members(found: ast.ClassDef) -> set[str]:
    names: set[str] = set()
    for node in found.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                pass
    for part in ast.walk(found):
        match part:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                names.add(name)
            case _:
                pass
    return names - {"__init__"}
