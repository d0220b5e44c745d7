"""Cost of imports, measured by imported modules: structure does not depend on the machine, time does."""

import json
import subprocess
import sys

import pytest

_HEAVY = {"asyncio", "pika", "sqlite3", "msgspec", "cyclopts", "rich", "pydantic", "logging", "typing_extensions"}

_OF_THE_STORE = (
    "taskmq.stored_jobs",
    "taskmq.contracts.jobs",
    "taskmq.contracts.history",
    "taskmq.contracts.identity",
)


def _imported_by(program: str) -> set[str]:
    """Return the modules of a fresh interpreter after `program`, without the initial ones."""
    report = (
        "import sys\nbefore = set(sys.modules)\n{}\nimport json\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", report.format(program)], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout))


def test_importing_taskmq_imports_next_to_nothing() -> None:
    imported = _imported_by("import taskmq")

    assert {name for name in imported if name.startswith("taskmq")} == {"taskmq"}
    assert imported & _HEAVY == set()


def test_a_name_loads_its_module_on_first_use() -> None:
    imported = _imported_by("from taskmq import TaskMQError, Retry")

    assert {name.split(".")[1] for name in imported if name.startswith("taskmq.")} == {"control_flow", "errors"}
    assert imported & _HEAVY == set()


def test_defining_an_app_imports_no_adapter_and_no_command_line() -> None:
    imported = _imported_by(
        "from taskmq import TaskMQ\napp = TaskMQ('amqp://localhost/')\n@app.task\ndef sell(item: str) -> None: ..."
    )

    assert (
        imported
        & {"pika", "sqlite3", "cyclopts", "rich", "pydantic", "taskmq_rabbitmq", "taskmq_local", "redis", "tomllib"}
        == set()
    )


def test_an_app_without_a_job_store_imports_neither_its_contract_nor_its_client() -> None:
    app = "from taskmq import TaskMQ\napp = TaskMQ('memory://')\n@app.task\ndef sell(item: str) -> None: ..."
    sender = _imported_by(f"{app}\nsell.send('hat')")
    worker = _imported_by("import taskmq.worker.child")
    task_process = _imported_by("import taskmq.executors.child, taskmq.app")
    beat = _imported_by("import taskmq.cli.root, taskmq.cli.processes.beat")

    for imported in (sender, worker, task_process, beat):
        assert "taskmq.app" in imported
        assert {name for name in imported if name.startswith(_OF_THE_STORE)} == set()


def test_the_supervisor_imports_neither_the_worker_nor_the_app_nor_plugin_discovery() -> None:
    imported = _imported_by("import taskmq.cli.root, taskmq.cli.processes.worker")

    assert "taskmq.supervisor.supervisor" in imported
    assert imported & {"taskmq.app", "taskmq.worker.worker", "taskmq.client.plugins", "importlib.metadata"} == set()


def test_commands_about_the_broker_import_no_code_for_stored_jobs() -> None:
    imported = _imported_by(
        "import taskmq.cli.operators.queue, taskmq.cli.operators.send, taskmq.cli.operators.workers\n"
        "import taskmq.cli.operator, taskmq.app_api.queues, taskmq.app_api.workers, taskmq.app_api.dead_letters"
    )

    assert "taskmq.app_api.queues" in imported
    assert imported & {"taskmq.operations.bulks", "taskmq.operations.tenant_jobs", "taskmq.stored_jobs"} == set()


def test_the_embedded_broker_imports_no_broker_in_memory() -> None:
    imported = _imported_by(
        "import taskmq_local, taskmq_local.broker.broker, taskmq_local.state.state\ntaskmq_local.open_local_broker"
    )

    assert "taskmq_local.database.database" in imported
    assert {name for name in imported if name.startswith(("taskmq_local.memory", "taskmq_local.file_blobs"))} == set()


def test_the_scheduler_imports_no_code_for_mail_and_none_of_a_server() -> None:
    imported = _imported_by("import taskmq.cli.root, taskmq.cli.processes.scheduler")

    assert "taskmq.scheduler.alerts.notices" in imported
    assert imported & {"email", "smtplib", "litestar", "uvicorn", "taskmq.app_api", "taskmq.http"} == set()


def test_a_store_in_postgresql_imports_no_library_of_migrations() -> None:
    imported = _imported_by(
        "from taskmq.contracts.broker import BrokerOptions\nfrom taskmq_sql import open_job_store\n"
        "open_job_store('postgresql://localhost/jobs', BrokerOptions(name='shop'))"
    )

    assert {"asyncpg", "taskmq_sql.postgres.store"} <= imported
    assert imported & {"alembic", "sqlalchemy"} == set()


def test_callers_connections_of_other_libraries_import_no_sqlalchemy() -> None:
    imported = _imported_by(
        "import asyncio, contextlib\nfrom taskmq.errors import UnsupportedFeature\n"
        "from taskmq_sql.postgres.transactions import connection_of\n"
        "with contextlib.suppress(UnsupportedFeature):\n    asyncio.run(connection_of(7))"
    )

    assert "asyncpg" in imported
    assert "sqlalchemy" not in imported


def test_the_server_imports_no_library_for_other_kinds_of_values() -> None:
    imported = _imported_by(
        "from taskmq import TaskMQ\nfrom taskmq.server import build\nbuild(TaskMQ('memory://', store='sqlite:///a.db'))"
    )

    assert "litestar" in imported
    assert imported & {"pydantic", "attr", "attrs"} == set()


def test_topology_migrate_is_imported_only_by_its_command() -> None:
    imported = _imported_by(
        "import taskmq_rabbitmq, taskmq_rabbitmq.topology_admin, taskmq_rabbitmq.admin.doctor\n"
        "import taskmq.cli.root, taskmq.cli.operators.topology, taskmq.worker.child, taskmq.worker.worker"
    )

    assert "taskmq_rabbitmq.broker" in imported
    assert {name for name in imported if name.startswith("taskmq_rabbitmq.migrate")} == set()


@pytest.mark.parametrize("name", ["nothing", "errors2", "_private"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"module 'taskmq' has no attribute '{name}'"):
        getattr(__import__("taskmq"), name)
