"""Usage: help, misspellings, global options, sources of settings, output streams."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.kit import Here, command, environment, run_here, run_process

_COMMANDS = ("demo", "dev", "worker", "beat", "scheduler", "send", "job", "queue", "schedule", "dlq", "doctor")
_EVERY = [
    [],
    *([name] for name in _COMMANDS),
    *(["job", name] for name in ("waiting", "cancel", "reschedule")),
    *(["queue", name] for name in ("list", "purge")),
    *(["schedule", name] for name in ("list", "next", "explain", "history", "pause", "resume", "run", "backfill")),
    *(["dlq", name] for name in ("list", "show", "replay", "purge")),
]
_SECRET = "s3cr3t-w0rd"
_NOWHERE = f"amqp://user:{_SECRET}@127.0.0.1:1/"

_DESCRIPTION = re.compile(r"(?:\* +)?(?P<name>--[a-z-]+|[A-Z]+(?=  ))(?: -\S)?(?: [A-Z]+)?(?P<text>(?:  .*)?)")

_HELP_OF_ALL = """
import contextlib, io, json, sys
before = set(sys.modules)
from taskmq.cli import run
for tokens in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = run([*tokens, "--help"])
    heavy = sorted({"pika", "sqlite3", "_sqlite3", "redis", "uvloop", "watchfiles"} & (set(sys.modules) - before))
    print(json.dumps([tokens, code, len(printed.getvalue()), heavy]))
"""


def test_help_of_every_command_works_and_imports_no_client_library(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HELP_OF_ALL, json.dumps(_EVERY)],
        cwd=home,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )

    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [tokens for tokens, *_ in answers] == _EVERY
    for tokens, code, length, heavy in answers:
        assert (tokens, code, heavy) == (tokens, 0, [])
        assert length > 200


@pytest.mark.parametrize("tokens", _EVERY, ids=" ".join)
def test_help_goes_to_standard_output_and_describes_every_option(taskmq: Here, tokens: list[str]) -> None:
    result = taskmq(*tokens, "--help")

    assert (result.code, result.err) == (0, "")
    described = {
        found["name"]: found["text"]
        for line in result.out.splitlines()
        if (found := _DESCRIPTION.fullmatch(line.strip("│ "))) is not None
    }
    assert "--output" in described
    for name, text in described.items():
        assert text.strip(), name
        assert not text.strip().startswith("[default"), f"no description: {name}"


def test_help_fills_the_lines_wherever_the_source_breaks_them(home: Path) -> None:
    shown = run_here(home, "store", "rotate-key", "--help", env={"COLUMNS": "400"}).out

    assert "Back up the store afterwards: after a restore from an older backup, it rejects reports" in shown
    assert "because they have leaked. Needed only if a store is restored." in shown


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["send"], "a misspelled name is an error, not a new queue"),
        (["worker"], "The first SIGTERM or Ctrl-C drains"),
        (["doctor"], "Exits with 1 if there is a problem."),
        (["definition"], "Submit a job of one with `taskmq job submit NAME`."),
    ],
)
def test_help_of_a_command_has_its_whole_description(taskmq: Here, tokens: list[str], words: str) -> None:
    assert words in " ".join(taskmq(*tokens, "--help").out.split())


def test_help_of_the_root_names_every_command_and_the_exit_codes(taskmq: Here) -> None:
    result = taskmq("--help")

    for name in _COMMANDS:
        assert f"│ {name} " in result.out
    for code in ("0 ok", "2 usage", "124 timeout", "130 interrupted"):
        assert code in " ".join(result.out.split())


def test_without_a_command_the_help_is_shown(taskmq: Here) -> None:
    assert taskmq().out == taskmq("--help").out


def test_the_version_is_data(taskmq: Here) -> None:
    result = taskmq("--version")

    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("taskmq ")


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["wroker"], 'Unknown command "wroker". Did you mean "worker"?'),
        (["worker", "shop:app", "--cuncurrency", "3"], "--cuncurrency. Did you mean --concurrency?"),
        (["dlq", "lits", "images"], 'Did you mean "list"?'),
        (["send", "shop.double", "--wiat"], "--wiat. Did you mean --wait?"),
        (["--outptu", "json", "doctor"], '"--outptu"'),
        (["-o", "yaml", "doctor"], '"table", "json", "jsonl"'),
        (["worker", "shop:app", "-c", "many"], '"many"'),
        (["dlq", "show"], "QUEUE"),
        (["dlq", "list"], "no queue given"),
        (["send"], "TASK"),
        (
            ["send", "x", "1", "cat"],
            """Unexpected arguments: 1 cat. Pass the task's arguments as --args '[1, "cat"]', a JSON""",
        ),
        (
            ["job", "submit", "x", "7"],
            "Unexpected arguments: 7. Pass the task's arguments as --args '[7]', a JSON array",
        ),
        (["workers", "now"], "Unexpected arguments: now. See taskmq workers --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_exit_code_2_with_a_suggestion_on_standard_error(
    taskmq: Here, tokens: list[str], words: str
) -> None:
    result = taskmq(*tokens)

    assert (result.code, result.out) == (2, "")
    assert words in " ".join(result.err.replace("│", " ").split())


@pytest.mark.parametrize("tokens", [["-o", "json", "queue", "list"], ["queue", "list", "-o", "json"]], ids=" ".join)
def test_global_options_may_precede_or_follow_the_command(taskmq: Here, tokens: list[str]) -> None:
    result = taskmq(*tokens, "--url", "local://q", "-Q", "images")

    assert result.code == 0
    assert isinstance(result.data, list)


# Sources of settings


def _broker(result_of: Here, *tokens: str) -> str:
    result = result_of("doctor", "-o", "json", *tokens)
    assert result.code == 0
    return next(str(row["finding"]) for row in result.data if row["about"] == "broker")


def test_a_flag_precedes_environment_file_and_default_in_this_order(
    home: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _broker(taskmq) == "local://.taskmq"

    (home / "pyproject.toml").write_text('[tool.taskmq]\nurl = "local://project"\n')
    assert _broker(taskmq) == "local://project"

    (home / "taskmq.toml").write_text('url = "local://file"\n')
    assert _broker(taskmq) == "local://file"

    monkeypatch.setenv("TASKMQ_URL", "local://environment")
    assert _broker(taskmq) == "local://environment"

    assert _broker(taskmq, "--url", "local://flag") == "local://flag"


def test_the_app_comes_from_the_flag_the_environment_or_the_file(
    shop: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop / "other.py").write_text(
        "from taskmq import TaskMQ\napp = TaskMQ()\n@app.task(queue='others')\ndef f() -> None: ...\n"
    )

    def abouts(*tokens: str) -> set[str]:
        return {row["about"] for row in taskmq("doctor", "-o", "json", *tokens).data}

    assert not abouts() & {"images", "others"}
    (shop / "taskmq.toml").write_text('app = "other:app"\n')
    assert abouts() & {"images", "others"} == {"others"}
    monkeypatch.setenv("TASKMQ_APP", "shop:app")
    assert abouts() & {"images", "others"} == {"images"}
    assert abouts("--app", "other") & {"images", "others"} == {"others"}


@pytest.mark.parametrize("text", ['ulr = "local://q"', "url = 7.5", "url = "], ids=["unknown", "no text", "no TOML"])
def test_an_unreadable_settings_file_is_wrong_usage(home: Path, taskmq: Here, text: str) -> None:
    (home / "taskmq.toml").write_text(text)

    result = taskmq("doctor")

    assert (result.code, result.out) == (2, "")
    assert "taskmq.toml" in result.err


def test_a_misspelt_variable_is_wrong_usage(taskmq: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_CONCURENCY", "3")

    result = taskmq("doctor")

    assert result.code == 2
    assert "did you mean 'concurrency'?" in result.err


@pytest.mark.parametrize("tokens", [["worker"], ["beat"], ["scheduler"], ["dev"]], ids=" ".join)
def test_a_command_that_needs_an_app_says_how_to_name_one(taskmq: Here, tokens: list[str]) -> None:
    result = taskmq(*tokens)

    assert (result.code, result.out) == (2, "")
    assert "MODULE:ATTRIBUTE" in result.err


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:app", "'nowhere'"),
        ("shop:nothing", "its apps: app"),
        ("shop:double", "its apps: app"),
        ("..", ".."),
        ("two", "its apps: one, other"),
        ("two:nothing", "one, other"),
    ],
)
def test_a_missing_app_is_wrong_usage(shop: Path, taskmq: Here, target: str, words: str) -> None:
    (shop / "two.py").write_text("from taskmq import TaskMQ\none = TaskMQ()\nother = TaskMQ()\n")

    result = taskmq("doctor", "--app", target)

    assert (result.code, result.out) == (2, "")
    assert words in result.err


@pytest.mark.parametrize("target", ["shop", "shop.py", "./shop.py", "shop.py:app", "shop:app"])
def test_an_app_is_named_by_its_module_or_its_file(shop: Path, taskmq: Here, target: str) -> None:
    result = taskmq("queue", "list", "-o", "json", "--app", target)

    assert result.code == 0
    assert isinstance(result.data, list)


# Secrets and errors


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param(["queue list -Q images", "workers"], id="two seconds"),
        pytest.param(
            ["doctor", "send shop.double", "dlq list images", "dlq replay images"],
            id="ten seconds",
            marks=[
                pytest.mark.slow,
                pytest.mark.nightly(
                    "tests/cli/test_usage.py::test_an_unreachable_broker_is_exit_code_5_without_its_password"
                ),
            ],
        ),
    ],
)
def test_an_unreachable_broker_is_exit_code_5_without_its_password(home: Path, commands: list[str]) -> None:
    # Concurrently: each of them gives the broker its time.
    with ThreadPoolExecutor(len(commands)) as pool:
        results = list(pool.map(lambda text: run_process(home, "--url", _NOWHERE, *text.split()), commands))

    for result in results:
        assert result.code == 5, result
        assert "127.0.0.1:1" in result.out + result.err
        assert _SECRET not in result.out + result.err


@pytest.mark.parametrize(
    "url",
    [
        f"amqp://user:{_SECRET}@host:port/",
        f"ampq://user:{_SECRET}@host/",
        f"user:{_SECRET}@host",
        f"{_SECRET}://host",
    ],
)
def test_an_invalid_url_is_wrong_usage_and_its_password_is_not_shown(taskmq: Here, url: str) -> None:
    result = taskmq("--url", url, "doctor")

    assert result.code == 2
    assert "password" not in url
    assert f":{_SECRET}" not in result.out + result.err


def test_a_password_in_the_environment_is_not_shown_by_doctor(taskmq: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_STATE", f"redis://:{_SECRET}@127.0.0.1:1/")

    result = taskmq("doctor")

    assert _SECRET not in result.out + result.err


@pytest.mark.parametrize("tokens", [["--help"], ["doctor", "-o", "json"]], ids=" ".join)
def test_a_closed_pipe_ends_a_command_quietly(home: Path, tokens: list[str]) -> None:
    process = subprocess.Popen(
        command(*tokens), cwd=home, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        code = process.wait(40)

    assert (code, said) == (1, "")


def test_the_module_is_the_command(home: Path) -> None:
    result = run_process(home, "--version")

    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("taskmq ")


def test_an_error_in_the_module_of_the_app_is_raised_unchanged(home: Path) -> None:
    (home / "broken.py").write_text("import json\njson.loads('{')\n")

    result = run_process(home, "doctor", "--app", "broken:app")

    assert (result.code, result.out) == (1, "")
    assert "json.decoder.JSONDecodeError" in result.err


def test_output_printed_while_importing_an_app_is_not_data(home: Path, taskmq: Here) -> None:
    (home / "shop.py").write_text("from taskmq import TaskMQ\nprint('loading the shop')\napp = TaskMQ()\n")

    result = taskmq("--app", "shop:app", "-o", "json", "queue", "list", "-Q", "default")

    assert (result.code, [row["queue"] for row in result.data]) == (0, ["taskmq.unroutable"])
    assert result.err.startswith("loading the shop\n")
