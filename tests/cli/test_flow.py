"""`taskmq workflow`."""

from pathlib import Path
from typing import Any

import pytest

from taskmq import FlowClosed, FlowFailed, TaskMQ, batch, chain
from taskmq.workflow.handle import Flow
from taskmq.workflow.parts import Workflow
from tests.cli.kit import Here, Started, names_in
from tests.servers import eventually
from tests.unit.workflow.state_flows import send_to_state

GALLERY = """\
import os

from taskmq import TaskMQ

app = TaskMQ()


@app.task(name="resize", queue="images", retry=None)
async def resize(name: str) -> str:
    if not os.path.exists("mended"):
        raise ValueError(f"no photo {name}")
    return name


@app.task(name="upload", queue="images")
async def upload(name: str) -> str:
    return name
"""


def _send(app: TaskMQ, workflow: Workflow[Any]) -> Flow[Any]:
    return app.sessions.run_sync(send_to_state(workflow), instead="send_to_state")


@pytest.fixture
def failed_workflow(home: Path) -> str:
    """Run a workflow with a failing step; return its id."""
    (home / "gallery.py").write_text(GALLERY)
    with Started(home, "worker", "gallery:app") as worker:
        worker.says("waiting for jobs")
        with TaskMQ("local://.taskmq") as app:

            @app.task(name="resize", queue="images")
            async def resize(name: str) -> str:
                return name

            @app.task(name="upload", queue="images")
            async def upload(name: str) -> str:
                return name

            flow = _send(app, chain(upload.s("a"), resize.s(), upload.s()))
            with pytest.raises(FlowFailed):
                flow.result(timeout=20)
        eventually(lambda: names_in("images.dlq"), "its letter is there")
    return flow.id


def test_workflows_are_listed_by_name_and_state(failed_workflow: str, taskmq: Here) -> None:
    table = taskmq("flow", "list")
    found = taskmq("flow", "list", "--state", "failed", "--name", "up*", "--since", "2020-01-01", "-o", "json")

    assert [line.split()[:3] for line in table.out.splitlines()] == [
        ["workflow", "name", "state"],
        [failed_workflow, "upload", "failed"],
    ]
    assert [(one["workflow_id"], one["nodes"], one["unfinished"]) for one in found.data] == [(failed_workflow, 3, 0)]
    assert taskmq("flow", "list", "--state", "running", "-o", "json").data == []
    assert taskmq("flow", "list", "--state", "done").code == 2


def test_a_workflow_is_shown_step_by_step(failed_workflow: str, taskmq: Here) -> None:
    table = taskmq("flow", "show", failed_workflow)
    shown = taskmq("flow", "show", failed_workflow, "-o", "json").data

    assert table.code == 0
    lines = [line.split() for line in table.out.splitlines()]
    assert lines[:3] == [
        ["workflow", failed_workflow],
        ["state", "failed"],
        ["step", "task", "state", "attempts", "error"],
    ]
    assert lines[3:] == [
        ["upload", "upload", "succeeded", "1"],
        ["resize", "resize", "failed", "1", "ValueError:", "no", "photo", "a"],
        ["upload-2", "upload", "upstream_failed"],
    ]
    assert (shown["state"], shown["cancelled"], len(shown["steps"])) == ("failed", None, 3)
    assert shown["steps"][1]["error"] == "ValueError: no photo a"


def test_a_redrive_reruns_failures_and_counts_its_removed_letters(
    home: Path, failed_workflow: str, taskmq: Here
) -> None:
    (home / "mended").touch()

    result = taskmq("flow", "redrive", failed_workflow)

    assert (result.code, result.err) == (0, f"workflow {failed_workflow}: 2 steps run again, 1 dead letter removed\n")
    assert names_in("images.dlq") == []
    with Started(home, "worker", "gallery:app") as worker:
        worker.says("waiting for jobs")
        eventually(
            lambda: taskmq("flow", "show", failed_workflow, "-o", "json").data["state"] == "succeeded",
            "it succeeds",
        )
    again = taskmq("flow", "redrive", failed_workflow)
    assert again.code == 0
    assert "nothing to run again" in again.err


def test_a_workflow_is_cancelled_once(failed_workflow: str, taskmq: Here) -> None:
    assert taskmq("flow", "redrive", failed_workflow).code == 0

    cancelled = taskmq("flow", "cancel", failed_workflow, "--reason", "not wanted")
    again = taskmq("flow", "cancel", failed_workflow)

    assert (cancelled.code, cancelled.err) == (0, f"workflow {failed_workflow} cancelled\n")
    assert (again.code, again.err) == (3, f"workflow {failed_workflow} has already ended\n")
    assert taskmq("flow", "show", failed_workflow, "-o", "json").data["cancelled"] == "not wanted"


@pytest.mark.parametrize("verb", ["show", "cancel", "redrive"])
def test_an_unknown_workflow_is_not_found(home: Path, taskmq: Here, verb: str) -> None:
    result = taskmq("flow", verb, "nobody")

    assert (result.code, result.out) == (3, "")
    assert "workflow nobody is unknown" in result.err


def test_a_batch_is_closed_and_another_workflow_cannot_be(home: Path, taskmq: Here) -> None:
    (home / "gallery.py").write_text(GALLERY)
    with TaskMQ("local://.taskmq") as app:

        @app.task(name="upload", queue="images")
        async def upload(name: str) -> str:
            return name

        album = _send(app, batch(upload.s("a")))
        other = _send(app, chain(upload.s("a")))

        closed, refused = taskmq("flow", "close", album.id), taskmq("flow", "close", other.id)
        unknown = taskmq("flow", "close", "nobody")

        assert (closed.code, closed.err.strip()) == (0, f"batch {album.id} closed")
        assert refused.code == 6
        assert "accepts no more jobs" in refused.err
        assert unknown.code == 3
        with pytest.raises(FlowClosed):
            album.add(upload.s("b"))
