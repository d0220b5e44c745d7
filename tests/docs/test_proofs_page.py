"""Each line of docs/guarantees.md has an existing test in docs/proofs.md."""

import ast
import re
import threading
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from taskmq.errors import PublishUnknown, SendError
from tests.cli.kit import Started
from tests.docs.blocks import ROOT
from tests.parts import LATER
from tests.servers import RabbitMQ, eventually

_GUARANTEES, _PROOFS = ROOT / "docs" / "guarantees.md", ROOT / "docs" / "proofs.md"
_TEST = re.compile(r"`((?:tests|taskmq)/[\w/]+\.py)::(\w+)`")
_HEADS = {"outcome", "fault", "line", "---"}
_PATIENCE = timedelta(seconds=60)


def _sections(page: Path) -> dict[str, str]:
    _, *parts = page.read_text().split("\n## ")
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def _first_cells(text: str) -> list[str]:
    return [cell for cell in re.findall(r"^\| ?([^|]*?) ?\|", text, re.MULTILINE) if cell not in _HEADS]


def _lines(text: str) -> list[str]:
    """Return the promises of a section of the guarantees: its rows, and the bold beginnings of its points."""
    return _first_cells(text) + re.findall(r"^(?:-|\d+\.) \*\*(.+?)\*\*", text, re.MULTILINE)


def _proofs() -> dict[tuple[str, str], str]:
    return {
        (section, cell): row
        for section, text in _sections(_PROOFS).items()
        for row in text.splitlines()
        for cell in _first_cells(row)
    }


def test_each_line_of_the_guarantees_has_a_row_and_each_row_is_a_line() -> None:
    promised = {(section, line) for section, text in _sections(_GUARANTEES).items() for line in _lines(text)}

    assert len(promised) > 60
    assert _proofs().keys() == promised


def test_each_point_of_the_guarantees_has_a_name() -> None:
    for text in _sections(_GUARANTEES).values():
        assert re.findall(r"^(?:-|\d+\.) (?!\*\*).*", text, re.MULTILINE) == []


def test_the_tests_of_each_line_exist() -> None:
    for (section, line), row in _proofs().items():
        tests = _TEST.findall(row)

        assert tests or "| none: " in row or "| the same" in row, f"{section}: {line} has no test"
        for path, name in tests:
            found = re.search(rf"^\s*(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
            assert found, f"{section}: {line} names {path}::{name}, which does not exist"


def test_each_line_is_proved_by_a_test_that_the_gate_runs() -> None:
    only_later = {
        f"{section}: {cell}"
        for (section, cell), row in _proofs().items()
        if (tests := _TEST.findall(row)) and not any(_is_in_the_gate(path, name) for path, name in tests)
    }

    assert only_later == _LATER


# Nodes that die, by the dozen: `make test-nightly`.
_LATER = {
    "What each fault does: a quorum queue loses its majority",
    "What each fault does: a RabbitMQ node ends while a delayed job moves from one queue of the ladder to the next",
    "What each fault does: the job store's server is lost, and a synchronous standby takes over",
    "Where a duplicate can come from: A RabbitMQ node that dies",
}


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def _is_in_the_gate(path: str, name: str) -> bool:
    tree = _tree(path)
    of_the_module = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    of_the_test = [
        decorator
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
        for decorator in node.decorator_list
        # A marked parameter leaves the others.
        if not ast.unparse(decorator).startswith("pytest.mark.parametrize")
    ]
    later = re.compile(rf"\bmark\.({'|'.join(LATER)})\b")
    return not any(later.search(ast.unparse(each)) for each in (*of_the_module, *of_the_test))


_NOTES = """\
from pathlib import Path

from taskmq import TaskMQ

app = TaskMQ(send_timeout="2s")


@app.task(result=False)
def note(number: int) -> None:
    with Path("notes").open("a") as file:
        file.write(f"{number}\\n")
"""


@pytest.mark.rabbitmq
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_broker_that_blocks_publishing_loses_no_job_and_tells_the_sender(
    tmp_path: Path, rabbitmq_server: RabbitMQ, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block for longer than a send may take: it ends as unknown, and its job runs once the broker continues."""
    (tmp_path / "standstill.py").write_text(_NOTES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TASKMQ_URL", amqp_url)
    import standstill  # type: ignore[import-not-found]  # the test has written it

    outcomes: dict[int, SendError | None] = {}

    def send(number: int) -> None:
        try:
            standstill.note.send(number)
            outcomes[number] = None
        except SendError as error:
            outcomes[number] = error

    def read_numbers() -> list[int]:
        notes = tmp_path / "notes"
        return [int(line) for line in notes.read_text().splitlines()] if notes.exists() else []

    with standstill.app, Started(tmp_path, "worker", "standstill:app", env={"TASKMQ_URL": amqp_url}) as worker:
        worker.says("waiting for jobs")
        send(0)
        rabbitmq_server.pause()
        try:
            senders = [threading.Thread(target=send, args=(number,)) for number in range(1, 21)]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
        finally:
            rabbitmq_server.resume()
        eventually(lambda: set(read_numbers()) == set(range(21)), "each job", within=_PATIENCE)

    assert {type(outcome) for number, outcome in outcomes.items() if number} == {PublishUnknown}
    assert outcomes[0] is None
