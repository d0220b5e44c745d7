"""`taskmq doctor`."""

import re
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from taskmq.cli.output import write_plain
from taskmq_redis import RedisState
from tests.cli.kit import Here, Result, Started, bury, declare, fill, run_on_terminal
from tests.servers import RabbitMQ, eventually

_LOOKS = re.compile(r"taskmq ((?:dlq (?:list|groups)|queue list -Q) [^\s;`]+|topology diff)")
"""Commands in remedies that change nothing."""


def _finding(result: Result, about: str, *, level: str) -> Mapping[str, Any]:
    """Return the only finding of this level about something."""
    (found,) = [row for row in result.data if (row["about"], row["level"]) == (about, level)]
    return dict(found)


def _problems(result: Result) -> list[str]:
    return [row["about"] for row in result.data if row["level"] == "problem"]


def test_a_new_installation_has_no_problem(taskmq: Here) -> None:
    result = taskmq("doctor", "-o", "json")

    assert (result.code, result.err) == (0, "")
    assert {row["level"] for row in result.data} == {"ok"}
    assert {"python", "settings", "broker", "state"} <= {row["about"] for row in result.data}


def test_a_table_has_a_heading(taskmq: Here) -> None:
    result = taskmq("doctor")

    assert result.out.splitlines()[0].split() == ["level", "about", "finding", "remedy"]


def test_a_table_outside_a_terminal_wraps_long_findings(capsys: pytest.CaptureFixture[str]) -> None:
    finding, remedy = (
        "its consumer timeout is shorter than its longest task " * 3,
        "raise the timeout of the queue " * 3,
    )
    rows = [{"level": "problem", "about": "images", "finding": finding, "remedy": remedy}]

    write_plain(("level", "about", "finding", "remedy"), rows, folded=("finding", "remedy"))

    head, *lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 118 < len(finding + remedy)
    start, end = head.index("finding"), head.index("remedy")
    assert " ".join(line[start:end].strip() for line in lines).split() == finding.split()
    assert " ".join(line[end:].strip() for line in lines).split() == remedy.split()


def test_a_long_name_leaves_findings_their_room_on_a_terminal(home: Path) -> None:
    name = "invoices." + "x" * 75
    (home / "long.py").write_text(
        f"from taskmq import TaskMQ\n\napp = TaskMQ()\n\n\n@app.task(queue={name!r})\ndef send() -> None: ...\n"
    )

    result = run_on_terminal(home, "--app", "long:app", "doctor", columns=120)

    head, *lines = result.out.splitlines()
    assert head.index("finding") < 45
    assert any("the queue does not exist yet" in line for line in lines)
    assert max(map(len, lines)) <= 120


def test_the_source_of_settings_is_reported(home: Path, taskmq: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "taskmq.toml").write_text("concurrency = 3\n")
    monkeypatch.setenv("TASKMQ_URL", "local://q")

    result = taskmq("doctor")

    assert "$TASKMQ_URL" in result.out
    assert "taskmq.toml" in result.out


def test_missing_queues_of_the_app_are_a_warning(shop: Path, taskmq: Here) -> None:
    result = taskmq("doctor", "--app", "shop:app", "-o", "json")

    assert result.code == 0
    assert "does not exist" in _finding(result, "images", level="warning")["finding"]


def test_an_idle_queue_without_a_consumer_is_a_warning(shop: Path, taskmq: Here) -> None:
    declare("images", "ticks")

    result = taskmq("doctor", "--app", "shop:app", "-o", "json")

    assert result.code == 0
    assert "no consumer" in _finding(result, "images", level="warning")["finding"]


@pytest.mark.parametrize("queue", ["images", "images.p.high", "images.p.low"])
def test_messages_without_a_consumer_are_a_problem(shop: Path, taskmq: Here, queue: str) -> None:
    declare("images", "ticks")
    fill(queue, ["a", "b"])

    result = taskmq("doctor", "--app", "shop:app", "-o", "json")

    assert (result.code, _problems(result)) == (1, ["images"])
    assert _finding(result, "images", level="problem")["finding"] == "no consumer, 2 messages wait"
    assert _finding(result, "images", level="problem")["remedy"]


def test_dead_letters_are_a_warning_with_the_command_to_inspect_them(shop: Path, taskmq: Here) -> None:
    declare("images", "ticks")
    bury("images.dlq", ["a", "b", "c"])

    with Started(shop, "worker", "shop:app") as worker:
        worker.says("waiting for jobs")
        result = taskmq("doctor", "--app", "shop:app", "-o", "json")

    found = _finding(result, "images", level="warning")
    assert (result.code, found["finding"], found["remedy"]) == (0, "3 dead letters", "taskmq dlq groups images")


@pytest.mark.parametrize("queue", ["taskmq.parking", "taskmq.unroutable"])
def test_messages_without_a_known_task_are_a_problem(taskmq: Here, queue: str) -> None:
    declare("images")
    fill(queue, ["a"])

    result = taskmq("doctor", "-o", "json")

    assert (result.code, _problems(result)) == (1, [queue])


def test_an_unsupported_state_url_is_wrong_usage(taskmq: Here) -> None:
    result = taskmq("doctor", "--state", "carrier-pigeon://roof")

    assert (result.code, result.out) == (2, "")
    assert "local://" in result.err


def test_an_unreachable_state_is_exit_code_5_after_all_other_findings(taskmq: Here) -> None:
    result = taskmq("doctor", "--state", "local:///proc/nowhere/state", "-o", "json")

    assert (result.code, _problems(result)) == (5, ["state"])
    assert _finding(result, "broker", level="ok")
    assert "local:///proc/nowhere/state" in _finding(result, "state", level="problem")["finding"]


@pytest.mark.rabbitmq
def test_rabbitmq_without_a_state_has_no_problem_and_no_password_is_shown(taskmq: Here, amqp_url: str) -> None:
    result = taskmq("doctor", "--url", amqp_url, "-o", "json")

    assert result.code == 0, result.out
    assert _problems(result) == []
    assert "no results" in _finding(result, "state", level="warning")["finding"]
    assert "guest:guest" not in result.out + result.err


@pytest.mark.nightly("tests/cli/test_doctor.py::test_messages_without_a_consumer_are_a_problem")
@pytest.mark.rabbitmq
def test_messages_without_a_consumer_in_rabbitmq_are_a_problem(shop: Path, taskmq: Here, amqp_url: str) -> None:
    declare("images", "ticks", url=amqp_url)
    fill("images", ["a", "b"], url=amqp_url)

    result = taskmq("doctor", "--app", "shop:app", "--url", amqp_url, "-o", "json")

    assert (result.code, _problems(result)) == (1, ["images"])
    assert _finding(result, "images", level="problem")["finding"] == "no consumer, 2 messages wait"


@pytest.mark.rabbitmq
def test_a_rabbitmq_problem_is_reported_with_its_remedy(
    taskmq: Here, amqp_url: str, rabbitmq_server: RabbitMQ
) -> None:
    api = urlsplit(rabbitmq_server.management_url)
    vhost = urlsplit(amqp_url).path.removeprefix("/")
    classic = {"durable": True, "arguments": {"x-queue-type": "classic"}}
    declare("other", url=amqp_url)
    rabbitmq_server.http("DELETE", f"/api/queues/{vhost}/taskmq.parking")
    rabbitmq_server.http("PUT", f"/api/queues/{vhost}/taskmq.parking", classic)

    url = f"{amqp_url}?management=http://{api.hostname}:{api.port}"
    result = taskmq("doctor", "--url", url, "--watch", "10ms", "-o", "json")

    # Its binding was deleted with the queue.
    assert (result.code, _problems(result)) == (1, ["taskmq.parking", "topology"])
    assert "x-queue-type" in _finding(result, "taskmq.parking", level="problem")["finding"]
    assert _finding(result, "taskmq.parking", level="problem")["remedy"]
    assert "nothing was stuck" in _finding(result, "dead-lettering", level="ok")["finding"]


@pytest.mark.nightly("tests/unit/rabbitmq/admin/test_queue_diagnosis.py")
@pytest.mark.rabbitmq
@pytest.mark.timeout(90)
def test_live_queues_of_taskmq_are_not_leftovers_and_each_suggested_command_works(
    shop: Path, taskmq: Here, amqp_url: str, rabbitmq_server: RabbitMQ
) -> None:
    api = urlsplit(rabbitmq_server.management_url)
    url = f"{amqp_url}?management=http://{api.hostname}:{api.port}"
    vhost = urlsplit(amqp_url).path.removeprefix("/")
    env = {"TASKMQ_URL": url, "TASKMQ_STORE": f"sqlite:///{shop}/jobs.db", "TASKMQ_APP": "shop:app"}
    given = ("--url", url, "--store", env["TASKMQ_STORE"], "--app", "shop:app")
    assert taskmq(*given, "store", "upgrade").code == 0
    declare("images", "ticks", "others", url=url)
    bury("images.dlq", ["a"], url=url)
    fill("taskmq.parking", ["b"], url=url)

    with (
        Started(shop, "scheduler", "shop:app", env=env),
        Started(shop, "worker", "shop:app", "-Q", "images", "--node", "gpu-1", env=env) as worker,
    ):
        worker.says("waiting for jobs")
        own = ("taskmq.reports.", "taskmq.node.gpu-1")
        eventually(lambda: _begin(rabbitmq_server, vhost, own), "the scheduler and the worker have their own queues")
        result = taskmq(*given, "doctor", "-o", "json")
        compared = taskmq(*given, "topology", "diff", "-o", "json")

        left_over = [row for row in result.data if "left over" in row["finding"]]
        names = [row["name"] for row in compared.data if row["status"] == "extra"]
        commands = {found for row in result.data for found in _LOOKS.findall(row["remedy"])}
        answers = {words: taskmq(*given, *shlex.split(words)) for words in commands}

    assert names == ["others.dlq", "others.jobs", "others.p.high", "others.p.low", "others.parcels"]
    assert [row["finding"].partition(" and ")[0] for row in left_over] == [
        "left over: others.dlq, others.jobs, others.p.high"
    ]
    assert {words: answer.code for words, answer in answers.items()} == dict.fromkeys(commands, 0)
    assert {"dlq groups images", "dlq list taskmq.parking", "topology diff"} <= commands
    (listed,) = (answer.out for words, answer in answers.items() if words.startswith("queue list"))
    assert [line.split()[0] for line in listed.splitlines()[1:4]] == ["others.dlq", "others.jobs", "others.p.high"]


def _begin(server: RabbitMQ, vhost: str, names: Collection[str]) -> bool:
    queues: Any = server.http("GET", f"/api/queues/{vhost}")
    found = [str(queue["name"]) for queue in queues]
    return all(any(name.startswith(wanted) for name in found) for wanted in names)


def test_an_invalid_watch_duration_is_wrong_usage(taskmq: Here) -> None:
    assert taskmq("doctor", "--watch", "soon").code == 2


def test_the_clock_of_redis_is_compared(taskmq: Here, redis_url: str) -> None:
    result = taskmq("doctor", "--state", redis_url, "-o", "json")

    assert any(row["about"] == "state" and "clock: within" in row["finding"] for row in result.data)


@pytest.mark.parametrize(
    ("offset", "level", "words"),
    [(0, "ok", "within"), (5_000, "warning", "ahead of"), (-60_000, "problem", "behind")],
)
def test_a_state_with_a_wrong_clock_is_reported(
    taskmq: Here, redis_url: str, monkeypatch: pytest.MonkeyPatch, offset: int, level: str, words: str
) -> None:
    told = RedisState.server_now_ms

    async def off(state: RedisState) -> int:
        return await told(state) + offset

    monkeypatch.setattr(RedisState, "server_now_ms", off)
    result = taskmq("doctor", "--state", redis_url, "-o", "json")

    ((found, text),) = [
        (row["level"], row["finding"]) for row in result.data if row["about"] == "state" and "clock" in row["finding"]
    ]
    assert found == level
    assert words in text
