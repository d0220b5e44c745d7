"""Size limits of modules and packages, and their names."""

from collections import Counter

import pytest

from taskmq import TaskMQ
from tests.house.tree import ROOT, modules

_LONGEST_MODULE = 400
_LOOSE_MODULES = 7
_MODULES_IN_A_PACKAGE = 14
# One for each version of the tables, and more in future.
_GROWING = "taskmq_sql.migrations.versions"
_SHORTEST_MODULE = 40

_SHORT = {
    # Entry points that load before anything else.
    "taskmq/__main__.py",
    "taskmq/version.py",
    # One contract, or one store, a module.
    "contrib/taskmq_redis/stores/checkpoints.py",
    "contrib/taskmq_redis/stores/crash_counts.py",
    "contrib/taskmq_redis/stores/progress.py",
    "contrib/taskmq_redis/stores/revocations.py",
    "contrib/taskmq_sql/history/store.py",
    "contrib/taskmq_sql/identity/store.py",
    "contrib/taskmq_sql/sqlite/file/thread.py",
    "taskmq/contracts/history/logs.py",
    "taskmq/server/examples/example.py",
    "taskmq/scheduler/reports/queue.py",
    "taskmq/server/nodes/amounts.py",
    "contrib/taskmq_sql/location.py",
    # One noun of the API, or of the command line.
    "taskmq/cli/processes/probe.py",
    "taskmq/server/jobs/tasks.py",
    "taskmq/http/aio/workers.py",
    "taskmq/http/_generated/workers.py",
    "contrib/taskmq_sql/migrations/env.py",
    "contrib/taskmq_sql/tables.py",
    "taskmq/contracts/finding.py",
    "taskmq/contracts/identity/store.py",
    "taskmq/contracts/stores/blobs.py",
    "taskmq/contracts/stores/crash_counts.py",
    "taskmq/contracts/system_clock.py",
    "taskmq/model/clock.py",
    "taskmq/model/jobs/details.py",
    # Pure, and tested separately.
    "brokers/taskmq_local/rules/topics.py",
    "brokers/taskmq_rabbitmq/connect/backoff.py",
    "brokers/taskmq_rabbitmq/consume/losses.py",
    "taskmq/worker/long_runs/delivery_ages.py",
    # One service, or one helper of services, a module.
    "taskmq/beat/complaints.py",
    "taskmq/run/thread_frames.py",
    "taskmq/scheduler/history/retention.py",
    # A rule for all who acquire a lease by its key.
    "taskmq/durable/lease_terms.py",
    # Names and helpers shared by several modules.
    "contrib/taskmq_otel/attributes.py",
    "contrib/taskmq_sql/history/conditions.py",
    "contrib/taskmq_sql/jobs/held_jobs.py",
    "taskmq/schedules/record_access.py",
    # The source of the Lua code of all stores.
    "contrib/taskmq_redis/scripts/script.py",
    # A replaced class of pika.
    "brokers/taskmq_rabbitmq/amqp/heartbeats.py",
}
_LONG: dict[str, str] = {
    "brokers/taskmq_rabbitmq/publish/publisher.py": "the line and the window of one channel, changed by every step",
    "contrib/taskmq_sql/postgres/submission.py": "one transaction, from rows to answers",
    "taskmq/api/jobs.py": "schemas without code, in the order of the API's page",
    "taskmq/app.py": "the face of an app: a method is a line or two under what it guarantees",
    "taskmq/http/aio/jobs.py": "the calls of one noun, most of whose lines say what they guarantee",
    "taskmq/http/_generated/jobs.py": "generated from the module above",
    "taskmq/stored_jobs/jobs.py": "`app.jobs`: overloads of `submit`, which other modules build on",
}
_NO_GERUND = {"finding", "pending"}


def test_a_long_module_has_a_reason_not_to_be_split() -> None:
    assert {module.where for module in modules() if module.lines > _LONGEST_MODULE} == set(_LONG)


def test_a_short_module_has_a_reason_to_stand_alone() -> None:
    short = {
        module.where
        for module in modules()
        if module.lines < _SHORTEST_MODULE
        and not (module.is_package or module.is_suite or module.package == _GROWING)
    }

    assert short == _SHORT


def test_few_modules_stand_loose_in_the_core() -> None:
    loose = [module.name for module in modules() if module.path.parent == ROOT / "taskmq"]

    assert len([name for name in loose if name not in {"taskmq", "taskmq.__main__"}]) <= _LOOSE_MODULES


def test_a_package_holds_few_modules() -> None:
    sizes = Counter(one.package for one in modules() if not one.is_package and one.package != _GROWING)

    assert {package: size for package, size in sizes.items() if size > _MODULES_IN_A_PACKAGE} == {}


def test_a_module_is_named_by_a_noun() -> None:
    gerunds = {
        module.where
        for module in modules()
        for word in module.path.stem.split("_")
        if word.endswith("ing") and word not in _NO_GERUND
    }

    assert gerunds == set()


def test_an_attribute_of_an_app_has_a_module_of_the_same_name() -> None:
    app = TaskMQ("memory://places")
    names = [
        name
        for name in (*vars(app), "definitions", "jobs", "pools", "reactions", "runs")
        if name != "name" and not name.startswith("_")
    ]
    found = {name: type(getattr(app, name)).__module__.rpartition(".")[2] for name in names}

    assert {"jobs", "tasks"} < found.keys()
    assert found == {name: name for name in names}


@pytest.mark.parametrize("folder", ["brokers", "contrib"])
def test_a_source_folder_is_not_a_package(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()
