"""`taskmq topology`."""

import json
import shlex
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

import pytest

from taskmq.model.topology import WorkQueue
from tests.cli.kit import Here, at_broker, exists, run_here
from tests.servers import RabbitMQ, eventually

ODD = "a b;$(x)'.c"
SHOP = f"""\
from taskmq import TaskMQ, WorkQueue

app = TaskMQ(queues=[WorkQueue({ODD!r}, "classic"), WorkQueue("few", max_length=9)])

@app.task(queue="images", timeout="20m")
async def double(number: int) -> int:
    return number * 2
"""
BLIND = "management=http://127.0.0.1:1"


@pytest.fixture
def url(home: Path, amqp_url: str, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch) -> str:
    """Configure an empty virtual host, and an app."""
    (home / "shop.py").write_text(SHOP)
    at = urlsplit(rabbitmq_server.management_url)
    url = f"{amqp_url}?management=http://{at.hostname}:{at.port}"
    monkeypatch.setenv("TASKMQ_URL", url)
    monkeypatch.setenv("TASKMQ_APP", "shop:app")
    return url


def vhost_of(url: str) -> str:
    return quote(urlsplit(url).path.removeprefix("/"), safe="")


@pytest.mark.rabbitmq
def test_the_queues_of_nodes_exist_after_apply(taskmq: Here, url: str) -> None:
    taskmq("topology", "apply")
    nodes = ("--node", "gpu-1", "--node", "gpu-2")
    assert taskmq("topology", "diff", *nodes).code == 1

    assert taskmq("topology", "apply", *nodes).code == 0

    assert exists("taskmq.node.gpu-2.jobs", url=url)
    assert [taskmq("topology", "diff", *given).code for given in (nodes, ())] == [0, 0]
    refused = taskmq("topology", "apply", "--node", "gpu 1")
    assert (refused.code, "node 'gpu 1'" in refused.err) == (2, True)


@pytest.mark.rabbitmq
def test_apply_creates_what_plan_shows_and_then_nothing_differs(taskmq: Here, url: str) -> None:
    before = taskmq("topology", "diff", "-o", "json")
    plan = taskmq("topology", "plan", "-o", "json")
    assert (before.code, plan.code) == (1, 0)
    assert {row["status"] for row in before.data} == {"missing"}
    assert {row["action"] for row in plan.data} == {"create"}
    assert not exists("images", url=url)

    applied = taskmq("topology", "apply", "-o", "json")

    assert applied.code == 0
    assert [(row["kind"], row["name"]) for row in applied.data] == [(row["kind"], row["name"]) for row in plan.data]
    after = taskmq("topology", "diff", "-o", "json")
    assert (after.code, after.data) == (0, [])
    assert taskmq("topology", "apply", "-o", "json").data == []


@pytest.mark.rabbitmq
@pytest.mark.parametrize(
    "options",
    [
        pytest.param("", id="with the HTTP API"),
        pytest.param(
            f"?{BLIND}",
            id="without",
            marks=pytest.mark.nightly(
                "tests/cli/test_topology.py::test_without_the_http_api_only_existence_is_checked_and_reported_as_such"
            ),
        ),
    ],
)
def test_a_conflict_is_exit_code_6_with_its_remedy(
    taskmq: Here, url: str, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    at_broker(lambda broker: broker.declare([WorkQueue("images", "classic")]), url=url)
    if options:
        monkeypatch.setenv("TASKMQ_URL", url.partition("?")[0] + options)

    plan = taskmq("topology", "plan", "-o", "json")
    applied = taskmq("topology", "apply")

    assert applied.code == 6
    assert "images" in applied.err
    if options:
        assert "rabbitmq-plugins enable rabbitmq_management" in plan.err
    else:
        (conflict,) = [row for row in plan.data if row["name"] == "images"]
        assert plan.code == 6
        assert conflict["action"] == "conflict"
        assert "x-queue-type: wanted 'quorum', is 'classic'" in conflict["detail"]
        assert "taskmq topology migrate images" in applied.err
        assert not exists("few", url=url)


@pytest.mark.rabbitmq
def test_without_the_http_api_only_existence_is_checked_and_reported_as_such(
    taskmq: Here, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKMQ_URL", f"{url.partition('?')[0]}?{BLIND}")
    assert taskmq("topology", "diff").code == 1

    assert taskmq("topology", "apply").code == 0

    after = taskmq("topology", "diff", "-o", "json")
    assert after.code == 0
    assert {row["status"] for row in after.data} == {"unseen"}
    assert "by AMQP" in after.err


@pytest.mark.rabbitmq
def test_rabbitmq_itself_imports_an_export(taskmq: Here, url: str, home: Path, rabbitmq_server: RabbitMQ) -> None:
    exported = taskmq("topology", "export")
    file = home / "definitions.json"
    file.write_text(exported.out)

    if rabbitmq_server.version.startswith("3.10"):
        rabbitmq_server.ctl("import_definitions", str(file))
    else:
        # The other versions run in a chroot without access to the file.
        rabbitmq_server.http("POST", "/api/definitions", json.loads(exported.out))

    after = taskmq("topology", "diff", "-o", "json")
    assert (after.code, after.data) == (0, [])


@pytest.mark.nightly("tests/cli/test_topology.py::test_rabbitmq_itself_imports_an_export")
@pytest.mark.rabbitmq
def test_rabbitmqctl_accepts_the_printed_policies(taskmq: Here, url: str, rabbitmq_server: RabbitMQ) -> None:
    taskmq("topology", "apply")
    holds_back = not rabbitmq_server.version.startswith(("3.", "4.0", "4.1", "4.2"))
    printed = taskmq("topology", "policies", "--max-length", "5", *(["--return-delay", "5s"] if holds_back else []))
    assert printed.code == 0

    commands = [line for line in printed.out.splitlines() if line.startswith("rabbitmqctl set_policy")]
    for command in commands:
        rabbitmq_server.ctl(*shlex.split(command)[1:])

    def effective(queue: str) -> dict[str, Any]:
        found = cast(
            "dict[str, Any]", rabbitmq_server.http("GET", f"/api/queues/{vhost_of(url)}/{quote(queue, safe='')}")
        )
        return dict(found.get("effective_policy_definition") or {})

    assert any("taskmq.few" in command for command in commands)
    eventually(lambda: effective("few").get("max-length") == 5, "the policy of few")
    assert "max-length" not in effective("images")
    assert effective("few").get("delayed-retry-min") == (5000 if holds_back else None)


@pytest.mark.rabbitmq
def test_policies_for_a_version_need_no_broker(taskmq: Here, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_URL", "amqp://127.0.0.1:1/")

    printed = taskmq("topology", "policies", "--version", "4.0", "-o", "json")

    assert printed.code == 0
    assert {row["about"] for row in printed.data} == {f"taskmq.{ODD}", "taskmq.few", "taskmq.images"}
    assert taskmq("topology", "policies", "--version", "four").code == 2


@pytest.mark.rabbitmq
@pytest.mark.nightly("tests/cli/test_topology.py::test_policies_for_a_version_need_no_broker")
def test_policies_without_a_version_need_the_broker(taskmq: Here, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_URL", "amqp://127.0.0.1:1/")

    assert taskmq("topology", "policies").code == 5


@pytest.mark.rabbitmq
def test_migrating_asks_and_does_nothing_without_differences(taskmq: Here, url: str, home: Path) -> None:
    taskmq("topology", "apply")

    assert taskmq("topology", "migrate", "others", "--yes").code == 2
    unasked = run_here(
        home, "topology", "migrate", "images", env={"TASKMQ_URL": url, "TASKMQ_APP": "shop:app"}, text="y\n"
    )
    assert unasked.code == 1
    assert "--yes" in unasked.err
    done = taskmq("topology", "migrate", "images", "--yes")
    assert done.code == 0
    assert "nothing to do" in done.err


def test_a_broker_without_a_server_has_no_topology(taskmq: Here) -> None:
    result = taskmq("topology", "plan", "--url", "memory://")

    assert result.code == 2
    assert "this command needs RabbitMQ" in result.err
