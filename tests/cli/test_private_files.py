"""Files with arguments and results are private to their owner, whatever the umask of the process."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmq.model.topology import dead_letter_queue
from tests.cli.kit import Here, Result, declare, fill, run_here, run_process

_APP = """\
from taskmq import TaskMQ

app = TaskMQ("local://.taskmq", state="local://.taskmq", store="sqlite:///jobs.db")


@app.task
async def add(number: int) -> int:
    return number
"""


@pytest.fixture(autouse=True)
def _careless() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def _open_to_others(folder: Path) -> dict[str, str]:
    """Return the files that others may open, by their path."""
    found: dict[str, str] = {}
    for path in folder.rglob("*"):
        within = path.relative_to(folder)
        mode = stat.S_IMODE(path.stat().st_mode)
        parents = [folder / parent for parent in within.parents][:-1]
        if mode & 0o077 and all(stat.S_IMODE(parent.stat().st_mode) & 0o077 for parent in parents):
            found[str(within)] = f"{mode:o}"
    return found


def _run(folder: Path, *tokens: str) -> Result:
    run = run_process if tokens[0] == "worker" else run_here
    done = run(folder, *tokens, "--app", "shop:app")
    assert done.code == 0, done.err
    return done


def test_files_of_broker_state_and_store_are_private_to_their_owner(home: Path) -> None:
    (home / "shop.py").write_text(_APP)
    (home / "shop.py").chmod(0o600)

    _run(home, "store", "upgrade")
    _run(home, "worker", "--burst")
    _run(home, "send", "shop.add", "--args", "[1]")
    _run(home, "job", "submit", "shop.add", "--args", "[1]")
    _run(home, "worker", "--burst")

    assert {"jobs.db", ".taskmq"} <= {path.name for path in home.iterdir()}
    assert _open_to_others(home) == {}


def test_an_export_of_dead_letters_is_private_to_its_owner(home: Path, taskmq: Here) -> None:
    declare("images")
    fill(dead_letter_queue("images"), ["a"])

    assert taskmq("dlq", "export", "images", "--file", "letters.jsonl").code == 0
    assert stat.S_IMODE((home / "letters.jsonl").stat().st_mode) == 0o600


@pytest.mark.nightly(
    "tests/cli/test_private_files.py::test_files_of_broker_state_and_store_are_private_to_their_owner"
)
def test_doctor_warns_only_of_files_that_others_may_open(home: Path) -> None:
    (home / "shop.py").write_text(_APP)
    _run(home, "store", "upgrade")
    _run(home, "worker", "--burst")
    _run(home, "send", "shop.add", "--args", "[1]")
    home.chmod(0o755)

    private = run_here(home, "doctor", "--app", "shop:app", "-o", "json")
    (home / "jobs.db").chmod(0o644)
    (home / ".taskmq").chmod(0o755)
    (home / ".taskmq" / "taskmq.db").chmod(0o640)
    wide = run_here(home, "doctor", "--app", "shop:app", "-o", "json")

    assert "other users of this host" not in private.out
    assert wide.out.count("other users of this host") == 2
    assert "(mode 644)" in wide.out
    assert "chmod 600" in wide.out
    assert "(mode 640)" in wide.out


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///file:jobs?mode=memory", "sqlite:///%3Amemory%3A"])
def test_a_store_in_memory_is_refused(home: Path, taskmq: Here, url: str) -> None:
    refused = taskmq("store", "upgrade", "--store", url)

    assert refused.code == 2
    assert "cannot share a job store in memory" in refused.err
    assert list(home.iterdir()) == []


def test_a_store_in_a_missing_folder_is_refused(home: Path, taskmq: Here) -> None:
    refused = taskmq("store", "upgrade", "--store", "sqlite:///no/such/jobs.db")

    assert refused.code == 5
    assert f"folder {home / 'no' / 'such'} does not exist: create it, or name another path" in refused.err
    assert list(home.iterdir()) == []
