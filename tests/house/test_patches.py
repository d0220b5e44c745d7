"""Tests use public interfaces: patches of taskmq modules are listed, each with its reason."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.house.tree import ROOT, modules_of_tests, nodes

# Reason -> file below tests/ and the patched names. An argument of a constructor with a default is better.
_PATCHED: Final[dict[str, set[str]]] = {
    "Which packages are installed is the environment's business: it is replaced where it is read.": {
        "unit/app/test_app_failures.py: plugins.entry_points",
        "unit/client/test_plugins.py: plugins.entry_points",
    },
    "A limit of time that a loaded machine may exceed: the tests are about what is found.": {
        "integration/test_system_health.py: health._TIMEOUT",
        "integration/test_system_health.py: system._DOCTOR_TIMEOUT",
        "integration/test_system_health.py: system._TIMEOUT",
    },
    "A period, or a limit of time for a silent part: tests of what happens then would wait for many of them.": {
        "cli/test_stored_jobs.py: operations.report_job",
        "cli/test_through_a_server.py: operations.report_job",
        "integration/test_health.py: diagnosis._TIMEOUT",
        "integration/test_health.py: diagnosis._WORKERS_ANSWER",
        "integration/test_job_store_faults.py: taskmq_sql.postgres.connections.EVERY",
        "integration/test_store_replica.py: replica_standby._PATIENCE",
        "integration/test_system_health.py: health._WORKERS_ANSWER",
        "integration/test_system_health.py: listener._PERIOD",
        "integration/test_system_health.py: system._WORKERS_ANSWER",
        "unit/operations/diagnosis/test_doctor.py: taskmq.operations.diagnosis.doctor._TIMEOUT",
    },
    "A pause or a bound that is a constant on purpose: a test would take minutes, or too much memory.": {
        "faults/test_recovery.py: queue_consumer.reconnect_backoff",
        "integration/test_redis_faults.py: taskmq_redis.link.pubsub._PING",
        "integration/test_parcel_rollbacks.py: entities._PARCEL_TTL",
        "cli/test_audited_commands.py: taskmq.workflow.runs.service._PATIENCE",
        "cli/test_dlq.py: taskmq.cli.dead_letters._watch",
        "cli/test_top.py: taskmq.app_api.queues.MOST_WAITING",
        "cli/test_workflow.py: taskmq.workflow.runs.service._PATIENCE",
        "unit/client/test_large_arguments.py: loading._LATER",
        "unit/client/test_large_arguments.py: loading._PAUSES",
        "unit/operations/test_failures.py: taskmq.operations.history.failures._MOST",
        "unit/operations/test_failures.py: taskmq.operations.history.failures._PAGE",
        "unit/redis/link/test_server.py: taskmq_redis.link.pipeline._FRESH",
        "unit/scheduler/test_registrar.py: taskmq.scheduler.catalogue.registrar._MOST_FORMS",
        "unit/http/conftest.py: taskmq.workflow.runs.service._PATIENCE",
        "unit/server/isolation.py: taskmq.workflow.runs.service._PATIENCE",
        "unit/server/test_foreign_ids.py: taskmq.workflow.runs.service._PATIENCE",
        "unit/server/test_patterns.py: taskmq.workflow.runs.service._PATIENCE",
        "unit/server/test_queues.py: queues.MOST_WAITING",
        "unit/server/test_queues.py: queues._MOST_TENANTS",
        "unit/server/test_tenants.py: taskmq.workflow.runs.service._PATIENCE",
        "unit/server/test_workflows.py: taskmq.workflow.runs.service._PATIENCE",
        "unit/worker/run_logs/test_capture.py: history_of(app.sessions.store()).logs._search_lines",
    },
    "Ids are new in each process, on purpose; what a history of a seed does depends on them.": {
        "conformance/test_the_job_store_suite_itself.py: driver._order",
    },
    "A store that breaks a promise has another statement, or another rule, than the one that keeps it.": {
        "conformance/test_the_job_store_suite_itself.py: dispatches._FIRST",
        "conformance/test_the_job_store_suite_itself.py: updates.can_follow",
    },
    "Passwords cost what the server says, on purpose; what their hashes cost is tested with the hasher.": {
        "cli/test_restored.py: taskmq.access.PasswordHasher",
        "unit/server/test_sign_in.py: taskmq.server.sign_in.PasswordHasher",
    },
    "The version of a message that an earlier release supports.": {
        "unit/worker/test_worker.py: taskmq.model.envelope.IN_PARTS",
    },
    "A fault at one step, which no server can be made to have at that very step.": {
        "unit/beat/test_reactions.py: taskmq.beat.folders.scan",
        "unit/client/test_large_arguments.py: LargeValues.fetch",
        "unit/client/test_unique.py: type(state.claims).claim",
        "unit/client/test_unique.py: type(state.claims).renew",
        "unit/operations/test_failures.py: type(app.sessions.store()).list_jobs",
        "unit/worker/long_runs/test_guard.py: DeliveryAges.look",
        "unit/worker/services/test_queue_pauses.py: type(state.schedules).list_changed",
    },
    "What the machine or a server is like: a clock that is off, a timeout, no control groups, a slow machine.": {
        "cli/test_doctor.py: RedisState.server_now_ms",
        "e2e/test_demo.py: taskmq.demo.run.instants_after",
        "integration/test_rabbitmq_consumer_timeout.py: timeouts.consume_arguments",
        "unit/executors/test_process_limits.py: MemoryGroup.around",
    },
    "Who comes by is written down, and goes on as before: the steps of a guard are no events.": {
        "integration/test_idempotency_faults.py: IdempotencyGuard.acquire",
        "integration/test_idempotency_faults.py: IdempotencyGuard.release",
        "integration/test_limit_faults.py: LimitsGuard.acquire",
    },
    "A worker has the guards that its tasks need; these are doors of the test's own, in any order.": {
        "unit/worker/guards/test_guards.py: taskmq.worker.worker.build_guards",
    },
}


def test_patches_of_taskmq_modules_are_listed() -> None:
    found = {
        f"{module.path.relative_to(ROOT / 'tests')}: {target}"
        for module in modules_of_tests()
        for target in _patched_names(module.tree)
        if module.path != Path(__file__)
    }

    assert found == set().union(*_PATCHED.values())


def _patched_names(tree: ast.Module) -> Iterator[str]:
    # The type of an object that a test got from an app counts as ours, too.
    ours = _names_of_ours(tree) | {"type"}
    for node in nodes(tree, ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Constant(value=str(target)), *_]):
                if target.startswith("taskmq"):
                    yield target
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[owner, ast.Constant(value=str(name)), *_]):
                if any(isinstance(part, ast.Name) and part.id in ours for part in ast.walk(owner)):
                    yield f"{ast.unparse(owner)}.{name}"
            case (
                ast.Call(func=ast.Attribute(attr="object", value=ast.Name(id="patch")))
                | ast.Call(func=ast.Name(id="patch") | ast.Attribute(attr="patch", value=ast.Name(id="mock")))
            ):
                yield ast.unparse(node)
            case _:
                pass


def _names_of_ours(tree: ast.Module) -> set[str]:
    return {
        alias.asname or alias.name
        for node in nodes(tree, ast.ImportFrom)
        if (node.module or "").startswith("taskmq")
        for alias in node.names
    }
