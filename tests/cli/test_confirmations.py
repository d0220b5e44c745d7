"""Destructive commands ask for confirmation, and do nothing without a terminal."""

from pathlib import Path

import pytest

from tests.cli.kit import Here, run_on_terminal
from tests.cli.test_audited_commands import commands

_APP = """\
from taskmq import TaskMQ

app = TaskMQ(store="sqlite:///jobs.db")


@app.task(name="double", queue="images")
def double(number: int) -> int:
    return number * 2
"""
_TAKING = frozenset({"remove", "delete", "purge", "erase"})
_LINES = {
    "admin role remove": ("ann", "--tenant", "acme"),
    "admin tenant remove": ("acme",),
    "admin token remove": ("0193a1f2",),
    "admin user remove": ("ann",),
    "alert remove": ("charges-fail",),
    "definition delete": ("nightly",),
    "dlq purge": ("images",),
    "node remove": ("gpu-1",),
    "pool remove": ("acme",),
    "queue purge": ("images",),
    "quota remove": ("acme",),
    "schedule remove": ("nightly",),
    "reaction remove": ("clean-up",),
    "store erase": ("--tenant", "acme"),
}


def test_every_destructive_command_has_an_option_to_skip_its_question() -> None:
    taking = {" ".join(words) for words, _ in commands() if words[-1] in _TAKING}

    assert taking == set(_LINES)


@pytest.mark.parametrize("words", _LINES, ids=lambda words: words.replace(" ", "-"))
def test_a_script_without_yes_destroys_nothing(home: Path, taskmq: Here, words: str) -> None:
    (home / "shop.py").write_text(_APP)

    refused = taskmq(*words.split(), *_LINES[words], "--app", "shop:app")

    assert refused.err.rstrip().endswith("? Not a terminal: pass --yes."), refused.err
    assert refused.code == 1


@pytest.mark.parametrize(("answer", "left"), [("n", ["ci"]), ("", ["ci"]), ("y", [])])
def test_a_person_has_to_confirm_the_revocation_of_a_token(
    tmp_path: Path, taskmq: Here, answer: str, left: list[str]
) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    taskmq("--store", store, "admin", "user", "add", "ann", "--no-password")
    token = taskmq("-o", "json", "--store", store, "admin", "token", "add", "ann", "ci").data["id"]

    asked = run_on_terminal(tmp_path, "--store", store, "admin", "token", "remove", token, types=f"{answer}\n")

    assert f"Revoke token {token} for good? [y/N]" in " ".join(asked.out.split())
    assert asked.code == (0 if answer == "y" else 1)
    assert [row["name"] for row in taskmq("-o", "json", "--store", store, "admin", "token", "list").data] == left


def test_forgetting_older_keys_requires_confirmation(taskmq: Here, tmp_path: Path) -> None:
    rotate = ("store", "rotate-key", "--store", f"sqlite:///{tmp_path / 'jobs.db'}")

    refused = taskmq(*rotate, "--forget-older")

    assert (refused.code, refused.err) == (1, "Forget all older keys for good? Not a terminal: pass --yes.\n")
    assert taskmq(*rotate, "--forget-older", "--yes").code == 0
    assert taskmq(*rotate).code == 0
