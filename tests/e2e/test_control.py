"""Several worker processes, and an operator who finds, watches and controls them on the command line."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Here, Result
from tests.e2e.kit import Project, until
from tests.servers import StartRabbitMQ


class Operator:
    """Runs `taskmq` at the broker of a project."""

    def __init__(self, project: Project, here: Here) -> None:
        self._project = project
        self._here = here

    def __call__(self, *tokens: str) -> Result:
        return self._here("--url", self._project.url, *tokens)

    def workers(self) -> dict[str, Any]:
        """Return the answering workers by name."""
        said = self("-o", "json", "workers", "--within", "400ms")
        assert said.code == 0, said.err
        return {row["name"]: row for row in said.data}

    def wait_for_workers(self, *names: str) -> dict[str, Any]:
        """Wait until exactly these answer."""
        found: dict[str, Any] = {}

        def are_listed() -> bool:
            found.clear()
            found.update(self.workers())
            return sorted(found) == sorted(names)

        until(are_listed, f"workers {names}", details=lambda: f"{sorted(found)} answer")
        return found


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    # Not the project's own folder: leftover processes of that are killed at the end.
    folder = tmp_path / "operator"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Here(capsys)


@pytest.fixture
def operator(project: Project, here: Here) -> Operator:
    return Operator(project, here)


def test_workers_of_several_processes_are_listed_and_one_is_drained_by_its_name(
    project: Project, operator: Operator
) -> None:
    runs = {"one": project.start(name="one", concurrency=3), "other": project.start(name="other")}
    found = operator.wait_for_workers("one", "other")
    assert (found["one"]["slots"], found["one"]["queues"], found["one"]["state"]) == (3, ["default"], "running")
    assert found["one"]["pid"] in runs["one"].children
    assert found["one"]["memory"] > 2**20
    assert found["one"]["started"].endswith("Z")

    table = operator("workers").out.splitlines()
    assert table[0].split()[:7] == ["name", "host", "pid", "version", "app_version", "queues", "state"]

    job = project.send("gated", "job")
    (attempt,) = project.wait_for("started", "job")
    owner = "one" if int(attempt[1]) == found["one"]["pid"] else "other"
    drained = operator("-o", "json", "worker", "control", "drain", owner)
    assert (drained.code, drained.data[0]["verdict"], drained.data[0]["status"]["state"]) == (0, "done", "draining")

    # It ends its runs, and is seen to drain meanwhile.
    status = operator("-o", "json", "worker", "control", "status", owner)
    assert [each["job_id"] for each in status.data[0]["jobs"]] == [job]
    assert operator.workers()[owner]["state"] == "draining"
    project.open("job")
    project.wait_for("finished", "job")

    (left,) = {"one", "other"} - {owner}
    operator.wait_for_workers(left)
    # Its only process is not replaced, so the worker has ended.
    assert runs[owner].wait() == 0
    assert runs[left].exit_code is None
    project.send("quick", 7)
    project.wait_for("ran", "7")


def test_the_stacks_of_a_worker_show_the_function_that_is_stuck(project: Project, operator: Operator) -> None:
    project.start(name="one")
    project.send("threaded", "hunter2")
    project.send("gated", "hunter3")
    project.wait_for("started", "hunter2")
    project.wait_for("started", "hunter3")
    operator.wait_for_workers("one")

    said = operator("worker", "control", "stacks", "one", "--within", "20s")

    assert said.code == 0
    assert said.out.startswith("== one (done)")
    assert "in threaded" in said.out
    assert "in gated" in said.out
    assert "hunter2" not in said.out
    for name in ("hunter2", "hunter3"):
        project.open(name)


def test_concurrency_is_changed_while_a_worker_runs(project: Project, operator: Operator) -> None:
    project.start(name="one", concurrency=1)
    operator.wait_for_workers("one")
    project.send("gated", "a")
    project.wait_for("started", "a")
    project.send("gated", "b")

    said = operator("-o", "json", "worker", "control", "concurrency", "2", "one")
    one_missing = operator("worker", "control", "status", "one", "two")

    assert (said.code, said.data[0]["detail"]) == (0, "1 -> 2")
    assert (one_missing.code, one_missing.err) == (3, "no answer within 1s from two\n")
    project.wait_for("started", "b")
    for name in ("a", "b"):
        project.open(name)
        project.wait_for("finished", name)


@pytest.mark.nightly(
    "tests/integration/test_rabbitmq_broadcasting.py::test_a_listener_with_a_deleted_queue_creates_another_one"
)
@pytest.mark.rabbitmq
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_worker_answers_again_after_a_restart_of_its_broker(
    own_rabbitmq: StartRabbitMQ, tmp_path: Path, here: Here
) -> None:
    server = own_rabbitmq()
    project = Project(tmp_path, server.create_vhost(), f"local://{tmp_path}/embedded")
    operator = Operator(project, here)
    try:
        project.start(name="one")
        operator.wait_for_workers("one")

        server.restart()

        def answers() -> bool:
            return operator("worker", "control", "status", "one", "--within", "2s").code == 0

        until(answers, "an answer after the restart")
        assert operator("worker", "control", "drain", "one").code == 0
    finally:
        project.close()
