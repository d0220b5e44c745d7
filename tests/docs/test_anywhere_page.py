"""The examples of docs/anywhere.md, in each installed language, against a complete installation."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.kit import Started, environment, run_here
from tests.docs.blocks import ROOT, blocks_of, write_files
from tests.servers import eventually

_PAGE = ROOT / "docs" / "anywhere.md"
_PASSWORD = "correct horse battery"


class _Installation(NamedTuple):
    folder: Path
    variables: dict[str, str]

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=environment(**self.variables), capture_output=True, text=True, timeout=55
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Installation]:
    folder = tmp_path_factory.mktemp("anywhere")
    write_files(ROOT / "docs" / "http.md", folder)
    write_files(_PAGE, folder)
    for block in blocks_of(_PAGE):
        if named := re.match(r"(?://|#) (\w+\.\w+)\n", block.text):
            (folder / named[1]).write_text(block.text)
    printed = ""
    for command, given in ((["admin", "init", "ann"], _PASSWORD), (["admin", "token", "add", "ann", "page"], "")):
        done = run_here(folder, "--app", "shop:app", "-o", "json", *command, text=given)
        assert done.code == 0, done.err
        printed = done.out
    token = json.loads(printed)["token"]
    with (
        Started(folder, "worker", "shop:app") as worker,
        Started(folder, "scheduler", "shop:app") as scheduler,
        Started(folder, "server", "shop:app", "--port", "0") as server,
    ):
        worker.says("waiting for jobs")
        scheduler.says("taskmq scheduler")
        server.says("at http://")
        (address,) = re.findall(r"at (http://[0-9.:]+)", server.said)
        yield _Installation(folder, {"TASKMQ_SERVER": address, "TASKMQ_TOKEN": token})


@pytest.mark.nightly("tests/docs/test_http_page.py::test_the_call_in_the_readme_submits_a_job")
def test_the_python_examples_print_results_and_errors(installation: _Installation) -> None:
    printed = installation.run(sys.executable, "process.py").splitlines()

    assert printed[0] == "VALUE"
    assert "data_procesing" in printed[1]
    assert installation.run(sys.executable, "follow.py").strip() == "['A', 'B', 'C']"


def _commands(about: str) -> list[str]:
    return [command for block in blocks_of(_PAGE) for command in block.commands if about in command]


@pytest.mark.nightly("tests/docs/test_http_page.py::test_the_call_in_the_readme_submits_a_job")
def test_the_shell_example_submits_one_job_however_often_it_runs(installation: _Installation) -> None:
    (submit, look) = _commands("order-18")

    first, second = (json.loads(installation.run("bash", "-c", submit)) for _ in range(2))

    assert (first["is_new"], second["is_new"], first["id"]) == (True, False, second["id"])
    ended = eventually(lambda: json.loads(installation.run("bash", "-c", look))["result"], "the result of the job")
    assert ended == "VALUE"


@pytest.mark.nightly("tests/docs/test_http_page.py::test_the_call_in_the_readme_submits_a_job")
@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not there")
def test_the_javascript_example_prints_the_result(installation: _Installation) -> None:
    assert installation.run("node", "process.mjs") == "completed VALUE\n"


@pytest.mark.nightly("tests/docs/test_http_page.py::test_the_call_in_the_readme_submits_a_job")
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not there")
def test_the_java_example_submits_a_job(installation: _Installation) -> None:
    status, _, body = installation.run("java", "Submit.java").partition(" ")

    assert (status, json.loads(body)["job_id"]) == ("201", "order-20")


@pytest.mark.nightly("tests/docs/test_http_page.py::test_the_call_in_the_readme_submits_a_job")
def test_a_graph_in_yaml_is_submitted_and_each_job_waits_for_its_dependencies(installation: _Installation) -> None:
    (write, submit), (_, look) = _commands("close.json"), _commands("order-18")

    def wait_for_end(job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(installation.run("bash", "-c", look.replace("order-18", job_id)))
        return found if found["end_time"] else {}

    installation.run("bash", "-c", write.replace("python", sys.executable, 1))
    outcomes = [json.loads(installation.run("bash", "-c", submit))["items"] for _ in range(2)]

    assert [[item["is_new"] for item in items] for items in outcomes] == [[True] * 4, [False] * 4]
    closed = eventually(lambda: wait_for_end("close-2027-01"), "the end of the job that waits for two")
    alarm = eventually(lambda: wait_for_end("alarm-2027-01"), "the end of the job that is not needed")
    assert (closed["result"], alarm["state"]) == ("CLOSE", "skipped")
    assert (
        max(wait_for_end(job_id)["end_time"] for job_id in ("orders-2027-01", "payments-2027-01"))
        <= closed["start_time"]
    )
