"""The examples of the HTTP pages: the commands run unchanged, against a server that they start."""

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from taskmq.cli import run
from taskmq.cli.root import LOCAL_ONLY, goes_through_a_server
from taskmq.cli.server_link import ask
from tests.cli.kit import Started, environment, run_here
from tests.docs.blocks import README, ROOT, blocks_of, write_files
from tests.docs.reference_pages import leaf_commands

_PAGE = ROOT / "docs" / "http.md"
_SERVER = ROOT / "docs" / "http-server.md"
_PATHS = ROOT / "docs" / "http-paths.md"


def _transcript() -> list[tuple[str, str]]:
    """Return each command on the page with its output."""
    found: list[tuple[str, str]] = []
    for block in blocks_of(_PAGE):
        if block.language == "console":
            for line in block.text.splitlines():
                if line.startswith("$ "):
                    found.append((line.removeprefix("$ "), ""))
                else:
                    command, printed = found.pop()
                    found.append((command, printed + line))
    return found


def _fits(expected: Any, found: Any) -> bool:
    """Whether they match; `...` stands for anything."""
    if expected == "...":
        return True
    if isinstance(expected, dict) and isinstance(found, dict):
        return set(expected) == set(found) and all(_fits(expected[name], found[name]) for name in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_fits, expected, found))
    return bool(expected == found)


def test_a_field_of_any_type_accepts_everything_and_others_do_not() -> None:
    assert _fits({"a": "...", "b": [1]}, {"a": 5, "b": [1]})
    assert not _fits({"a": "..."}, {"a": 5, "b": 1})
    assert not _fits([1], [1, 2])


def test_the_page_lists_the_commands_that_do_not_go_through_a_server() -> None:
    table = _PAGE.read_text().partition("These do not go through a server")[2].partition("\n\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = {tuple(name.split()) for row in rows for name in re.findall(r"`([a-z][a-z ]*)`", row)}
    commands = [(tuple(name.split()), _goes_through_a_server(function)) for name, function in leaf_commands()]

    assert listed == LOCAL_ONLY
    assert [words for words, is_remote in commands if goes_through_a_server(words) is not is_remote] == []
    assert all(any(words[: len(each)] == each for words, is_remote in commands if not is_remote) for each in listed)


@pytest.mark.parametrize(
    ("words", "has_server"),
    [("worker", False), ("worker control drain", True), ("--app shop:app job list", True), ("job waiting", False)],
)
def test_the_help_of_a_command_mentions_the_server_if_it_goes_through_one(
    words: str, has_server: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words.split(), "--help"]) == 0

    assert ("--server" in capsys.readouterr().out) is has_server


def _goes_through_a_server(command: Callable[..., object]) -> bool:
    """Whether a command, or a function of the command line that it uses, calls the API."""
    seen: set[Any] = set()
    left: list[Any] = [inspect.unwrap(command)]
    while left:
        function = left.pop()
        if function is ask:
            return True
        seen.add(function)
        names = {name for code in _codes(function.__code__) for name in code.co_names}
        used = [function.__globals__.get(name) for name in names]
        left += [one for one in used if isinstance(one, FunctionType) and one not in seen and _is_a_command_s(one)]
    return False


def _is_a_command_s(function: FunctionType) -> bool:
    return function.__module__.startswith("taskmq.cli.")


def _codes(code: CodeType) -> list[CodeType]:
    """Return the code of a function and of its nested functions."""
    return [code, *(each for one in code.co_consts if isinstance(one, CodeType) for each in _codes(one))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(_PAGE, tmp_path)
    write_files(_SERVER, tmp_path)
    return tmp_path


def test_the_commands_on_the_page_print_the_shown_output(folder: Path) -> None:
    setup = [command for command, printed in _transcript() if not printed]
    calls = [(command, printed) for command, printed in _transcript() if printed]
    install, add_admin, add_token, start = setup
    assert install.startswith("pip install ")
    assert start == "taskmq server shop:app &"
    assert "jq -r .token" in add_token
    token = _token(folder, add_admin, add_token)
    with Started(folder, "server", "shop:app", "--port", "0") as server:
        server.says("at http://")
        (address,) = re.findall(r"at http://([0-9.:]+)", server.said)
        for command, printed in calls:
            answer = _ask_api(folder, command, address, token)

            assert _fits(json.loads(printed), json.loads(answer)), (command, answer)


def test_the_call_in_the_readme_submits_a_job(tmp_path: Path) -> None:
    write_files(README, tmp_path)
    (call,) = re.findall(r"`(curl localhost:8787/[^`]+)`", README.read_text())
    store = {"TASKMQ_STORE": "sqlite:///jobs.db"}
    _, add_admin, add_token, _ = [command for command, printed in _transcript() if not printed]
    token = _token(tmp_path, add_admin, add_token, **store)
    with Started(tmp_path, "server", "shop:app", "--port", "0", env=store) as server:
        server.says("at http://")
        (address,) = re.findall(r"at http://([0-9.:]+)", server.said)

        answer = json.loads(_ask_api(tmp_path, call, address, token))

    assert (answer["status"], answer["state"], answer["is_new"]) == ("submitted", "queued", True)


def _token(folder: Path, add_admin: str, add_token: str, **more: str) -> str:
    """Create a token of the first admin by the commands on the page."""
    echo, password, pipe, program, *words = shlex.split(add_admin)
    assert (echo, pipe, program) == ("echo", "|", "taskmq")
    added = run_here(folder, *words, env=more, text=f"{password}\n")
    assert added.code == 0, added.err
    _, *words = shlex.split(add_token.partition("$(")[2].partition(" |")[0])
    made = run_here(folder, *words, env=more)
    return str(made.data["token"])


def _ask_api(folder: Path, command: str, address: str, token: str) -> str:
    # Older versions of curl have no --json.
    asked = command.replace("localhost:8787", address).replace("--json ", "-H 'Content-Type: application/json' -d ")
    return _shell(folder, asked, TASKMQ_TOKEN=token)


def _shell(folder: Path, command: str, **more: str) -> str:
    own = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(**own, **more),
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.mark.nightly("tests/unit/server/test_outside_events.py")
def test_a_signed_event_on_the_page_starts_a_job(folder: Path) -> None:
    page = _PAGE.read_text().partition("## Events from outside")[2].partition("\n## ")[0]
    started, sent = (text.partition("\n```")[0] for text in page.split("```sh\n")[1:])
    assert "--event-source 'shop=@acme:order_changed'" in started
    (secrets,) = re.findall(r"TASKMQ_EVENT_SECRETS='([^']*)'", started)
    code = (folder / "shop.py").read_text()
    task = '@app.task(name="order_changed", queue="work")\ndef order_changed(event: dict[str, object]) -> None: ...\n'
    (folder / "shop.py").write_text(f"{code}\n\n{task}")
    arguments = ("shop:app", "--port", "0", "--event-source", "shop=@acme:order_changed")
    with Started(folder, "server", *arguments, env={"TASKMQ_EVENT_SECRETS": secrets}) as server:
        server.says("at http://")
        (address,) = re.findall(r"at http://([0-9.:]+)", server.said)
        answers = [
            json.loads(
                subprocess.run(
                    ["bash", "-c", sent.replace("localhost:8787", address)],
                    check=True,
                    capture_output=True,
                    text=True,
                    timeout=20,
                ).stdout
            )
            for _ in range(2)
        ]

    assert [(one["status"], one["job_id"], one["is_new"]) for one in answers] == [
        ("submitted", "taskmq:event:shop:order-17-paid", True),
        ("submitted", "taskmq:event:shop:order-17-paid", False),
    ]


_ASK = """
import asyncio, importlib, json, sys
import httpx

async def run(host, use):
    sent, told = asyncio.Queue(), asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    task = asyncio.create_task(host(scope, sent.get, told.put))
    await sent.put({"type": "lifespan.startup"})
    assert (await told.get())["type"] == "lifespan.startup.complete"
    await use()
    await sent.put({"type": "lifespan.shutdown"})
    assert (await told.get())["type"] == "lifespan.shutdown.complete"
    await task

async def main():
    host = importlib.import_module(sys.argv[1]).web
    async def use():
        transport = httpx.ASGITransport(app=host)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            job = {"job_type": "data_processing", "payload": {"key": "a"}}
            ann = {"x-forwarded-user": "ann"}
            found = {
                "ready": (await client.get("/taskmq/api/v1/health/ready")).json(),
                "nobody": (await client.post("/taskmq/api/v1/jobs", json=job)).status_code,
                "ann": (await client.post("/taskmq/api/v1/jobs", json=job, headers=ann)).json(),
                "elsewhere": (await client.get("/nowhere")).status_code,
            }
            print(json.dumps(found))
    await run(host, use)

asyncio.run(main())
"""


@pytest.mark.nightly("tests/unit/server/test_mount.py")
@pytest.mark.parametrize("host", ["web", "litestar_web", "django_web", "members"])
def test_the_applications_on_the_page_serve_below_their_prefix(folder: Path, host: str) -> None:
    (folder / "mysite").mkdir()
    (folder / "mysite" / "settings.py").write_text(
        'SECRET_KEY = "x"\nALLOWED_HOSTS = ["here"]\nROOT_URLCONF = "mysite.urls"\n'
    )
    (folder / "mysite" / "urls.py").write_text("urlpatterns = []\n")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "brokers"), str(ROOT / "contrib"), "."])

    done = subprocess.run(
        [sys.executable, "-c", _ASK, host],
        cwd=folder,
        env=environment(PYTHONPATH=paths),
        capture_output=True,
        text=True,
        timeout=40,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["ready"]["status"], found["nobody"], found["elsewhere"]) == ("ready", 401, 404)
    assert found["ann"].get("status") == ("submitted" if host == "members" else 401)


def test_the_table_of_paths_names_every_first_part_of_a_path() -> None:
    from taskmq.server.application import HANDLERS

    page = _PATHS.read_text()
    firsts = {
        f"/{path.removeprefix('/api/v1/').split('/')[0]}"
        for handler in HANDLERS
        for path in handler.paths
        if path.startswith("/api/v1/")
    }

    assert {first for first in firsts if f"`{first}" not in page} == set()
