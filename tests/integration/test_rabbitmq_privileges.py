"""Users with exactly the permissions that `taskmq topology permissions` prints: the complete life of a task."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.cli.kit import PATIENCE, Result, Started, bury, run_here, run_process
from tests.servers import RabbitMQ, eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.timeout(180)]

PASSWORD = "S3CRET"
SHOP = """
import asyncio, os
from taskmq import Context, RetryPolicy, TaskMQ, WorkQueue

app = TaskMQ(queues=[WorkQueue("few", max_length=1000)], state="local://.state")

def note(*words):
    with open("ledger", "a") as ledger:
        ledger.write(" ".join(map(str, words)) + "\\n")

@app.task(queue="images")
async def double(number: int) -> None:
    note("double", number)

@app.task(queue="few", retry=RetryPolicy(base="200ms", max_attempts=2, jitter=0))
async def again(context: Context) -> None:
    note("again", context.attempt)
    if context.attempt == 1:
        raise ValueError("once more")

@app.task(queue="images", retry=None)
async def fail() -> None:
    note("fail")
    if not os.path.exists("mended"):
        raise ValueError("no")

@app.task(queue="images")
async def gated() -> None:
    note("started")
    while not os.path.exists("open"):
        await asyncio.sleep(0.01)
    note("finished")
"""


@dataclass
class Shop:
    """A folder with an app, a virtual host, and users by role."""

    folder: Path
    server: RabbitMQ
    vhost: str

    def url(self, role: str, options: str = "declare=off") -> str:
        at = urlsplit(self.server.management_url)
        where = f"127.0.0.1:{self.server.port}/{quote(self.vhost, safe='')}"
        login = "guest:guest" if role == "guest" else f"{self.user(role)}:{PASSWORD}"
        return f"amqp://{login}@{where}?{options}&management=http://{at.hostname}:{at.port}"

    def user(self, role: str) -> str:
        return f"{role}-{self.vhost}"

    def run(self, role: str, *tokens: str, options: str = "declare=off") -> Result:
        run = run_process if tokens[0] == "worker" else run_here
        result = run(self.folder, "--app", "shop:app", "--url", self.url(role, options), *tokens)
        assert PASSWORD not in result.out + result.err
        return result

    def does(self, role: str, *tokens: str) -> Result:
        result = self.run(role, *tokens)
        assert result.code == 0, result.err
        return result

    def worker(self) -> Started:
        return Started(self.folder, "--app", "shop:app", "--url", self.url("worker"), "worker", "shop:app")

    @property
    def ledger(self) -> list[str]:
        path = self.folder / "ledger"
        return path.read_text().splitlines() if path.exists() else []

    def ran(self, *lines: str) -> None:
        eventually(lambda: set(lines) <= set(self.ledger), f"{lines} in the ledger", within=PATIENCE)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, rabbitmq_server: RabbitMQ) -> Iterator[Shop]:
    """Create three users, each with the permissions that the command prints for its role."""
    folder, url = tmp_path_factory.mktemp("shop"), rabbitmq_server.create_vhost()
    (folder / "shop.py").write_text(SHOP)
    shop = Shop(folder, rabbitmq_server, urlsplit(url).path.removeprefix("/"))
    for role in ("producer", "worker", "operator"):
        rabbitmq_server.http("PUT", f"/api/users/{shop.user(role)}", {"password": PASSWORD, "tags": ""})
        printed = shop.does("guest", "topology", "permissions", "--role", role, "--user", shop.user(role)).out
        _, line = printed.splitlines()
        program, *arguments = shlex.split(line)
        assert program == "rabbitmqctl"
        if role == "worker":
            rabbitmq_server.ctl(*arguments)
            continue
        # As rabbitmqctl does, which is another Erlang machine.
        *command, configure, write, read = arguments
        vhost, user = shop.vhost, shop.user(role)
        assert command == ["set_permissions", "-p", vhost, "--", user]
        body = {"configure": configure, "write": write, "read": read}
        rabbitmq_server.http("PUT", f"/api/permissions/{vhost}/{user}", body)
    yield shop
    for role in ("producer", "worker", "operator"):
        rabbitmq_server.http("DELETE", f"/api/users/{shop.user(role)}")
    rabbitmq_server.delete_vhost(url)


def test_a_task_completes_among_users_with_only_the_permissions_of_their_role(shop: Shop) -> None:
    early = shop.run("worker", "worker", "--burst")
    assert early.code != 0
    assert "run `taskmq topology apply` as a user with configure permission" in early.err
    # Nothing is declared for a message: the broker returns it.
    assert shop.run("producer", "send", "shop.double", "--args", "[0]").code == 3

    assert shop.does("operator", "topology", "apply").out
    blind = shop.does("operator", "topology", "diff")
    assert "by AMQP" in blind.err

    with shop.worker() as worker:
        shop.does("producer", "send", "shop.double", "--args", "[1]")
        shop.does("producer", "send", "shop.double", "--args", "[2]", "--delay", "300ms")
        shop.does("producer", "send", "shop.again")
        shop.does("producer", "send", "shop.fail")
        shop.ran("double 1", "double 2", "again 1", "again 2", "fail")

        letters = eventually(
            lambda: shop.does("worker", "dlq", "list", "images", "-o", "jsonl").rows,
            "a dead letter",
            within=PATIENCE,
            every=timedelta(seconds=1),
        )
        assert [letter["task"] for letter in letters] == ["shop.fail"]
        (shop.folder / "mended").touch()
        shop.does("worker", "dlq", "replay", "images")
        eventually(lambda: shop.ledger.count("fail") == 2, "the replayed task", within=PATIENCE)

        shop.does("producer", "send", "shop.gated")
        shop.ran("started")
        worker.process.terminate()
        (shop.folder / "open").touch()
        assert worker.process.wait(40) == 0, worker.said
        shop.ran("finished")
        assert PASSWORD not in worker.said

    assert shop.run("worker", "dlq", "list", "images", "-o", "jsonl").rows == []
    assert shop.run("operator", "dlq", "list", "taskmq.parking", "-o", "jsonl").rows == []


def test_a_user_without_configure_permission_cannot_apply(shop: Shop) -> None:
    refused = shop.run("worker", "topology", "apply")

    assert refused.code == 4
    assert "ACCESS_REFUSED" in refused.err


def test_a_producer_may_not_read(shop: Shop) -> None:
    shop.does("operator", "topology", "apply")
    for queue in ("images.dlq", "taskmq.parking"):
        bury(queue, ["a"], url=shop.url("guest"))

    assert shop.run("producer", "dlq", "list", "images").code == 4
    assert shop.run("worker", "dlq", "list", "taskmq.parking").code == 4
