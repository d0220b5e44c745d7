"""A marked password, and everything that is printed, logged, raised or visible in the process list."""

import asyncio
import contextlib
import logging
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from taskmq.client.plugins import open_broker, open_state
from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import TaskMQError
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite import message
from tests.cli.kit import SHOP, Here, Started, bury, declare, environment
from tests.servers import RabbitMQ, Redis
from tests.servers.certificates import Authority
from tests.servers.ports import PortLease
from tests.servers.tokens import TokenServer

USER = "marked"
# In two halves, so that this file, which tracebacks quote, does not contain it.
PASSWORD = "Q7x-s3cr3t" + "-Q7x"
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


@dataclass(frozen=True)
class Marked:
    """A virtual host, and a user with a secret password."""

    url: str
    vhost: str
    port: int


@pytest.fixture
def marked_login(rabbitmq_server: RabbitMQ, amqp_url: str) -> Iterator[Marked]:
    vhost, port = urlsplit(amqp_url).path.removeprefix("/"), rabbitmq_server.port
    rabbitmq_server.http("PUT", f"/api/users/{USER}", {"password": PASSWORD, "tags": "administrator"})
    rabbitmq_server.http("PUT", f"/api/permissions/{vhost}/{USER}", EVERYTHING)
    management = f"http://127.0.0.1:{urlsplit(rabbitmq_server.management_url).port}"
    url = f"amqp://{USER}:{PASSWORD}@127.0.0.1:{port}/{vhost}?management={management}"
    yield Marked(url, vhost, port)
    rabbitmq_server.http("DELETE", f"/api/users/{USER}")


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Enable every log, including pika's, which taskmq silences by default."""
    caplog.set_level(logging.DEBUG)
    pika = logging.getLogger("pika")
    before = pika.level
    pika.setLevel(logging.DEBUG)
    yield
    pika.setLevel(before)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TASKMQ_APP", "shop:app")
    yield tmp_path
    # The next test's app is another one, at another broker.
    sys.modules.pop("shop", None)


COMMANDS = [
    "doctor",
    "-v doctor -o json",
    "queue list",
    "dlq list images",
    "dlq groups images",
    "dlq show images dead",
    "dlq export images",
    "dlq replay images --yes",
    "dlq purge images --yes",
    "job waiting",
    "send shop.double --args [7]",
    "send shop.double --args [7] --delay 60",
    "topology plan",
    "topology apply",
    "topology diff",
    "topology export",
    "topology policies",
    "topology permissions --role worker",
    "topology migrate images",
    "queue purge images --yes",
    "no-such-command",
    "doctor --no-such-option",
]


@pytest.mark.rabbitmq
@pytest.mark.slow
def test_no_command_prints_or_logs_the_password(
    marked_login: Marked,
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TASKMQ_URL", marked_login.url)
    taskmq = Here(capsys)
    declare("images", "ticks", url=marked_login.url)
    bury("images.dlq", ["dead"], url=marked_login.url)

    for command in COMMANDS:
        result = taskmq(*command.split())

        assert PASSWORD not in result.out + result.err, command
    assert PASSWORD not in caplog.text
    # The check is real: commands succeeded, and pika has logged.
    assert any(record.name.startswith("pika") for record in caplog.records)


@pytest.mark.rabbitmq
@pytest.mark.parametrize("command", ["doctor", "queue list", "send shop.double --args [7]", "topology plan"])
def test_a_refused_password_is_not_quoted(
    marked_login: Marked,
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    command: str,
) -> None:
    monkeypatch.setenv("TASKMQ_URL", marked_login.url.replace(f":{PASSWORD}@", f":wrong-{PASSWORD}@"))

    result = Here(capsys)(*command.split())

    assert result.code != 0
    assert "refused" in result.out + result.err
    assert PASSWORD not in result.out + result.err + caplog.text


@pytest.mark.rabbitmq
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "ready"),
    [
        (("-v", "worker", "shop:app", "--processes", "2"), "waiting for jobs"),
        pytest.param(
            ("-v", "beat", "shop:app"), "schedule", marks=pytest.mark.nightly("tests/integration/test_credentials.py")
        ),
    ],
)
def test_the_password_is_in_no_process_list_and_no_output(
    marked_login: Marked, shop: Path, tokens: tuple[str, ...], ready: str
) -> None:
    state = f"local://{shop}/state"
    declare("images", "ticks", url=marked_login.url)
    with Started(shop, *tokens, env={"TASKMQ_URL": marked_login.url, "TASKMQ_STATE": state}) as service:
        service.says(ready)
        family = [service.process.pid, *_descendants(service.process.pid)]
        shown = {pid: _visible_facts(pid) for pid in family}
        if "worker" in tokens:
            assert len(family) >= 3

    assert not [pid for pid, text in shown.items() if PASSWORD in text]
    assert PASSWORD not in service.said


@pytest.mark.rabbitmq
@pytest.mark.slow
def test_a_url_on_the_command_line_is_not_passed_to_children_there(marked_login: Marked, shop: Path) -> None:
    state = f"local://{shop}/state"
    with Started(shop, "--url", marked_login.url, "--state", state, "worker", "shop:app") as service:
        service.says("waiting for jobs")
        shown = [_visible_facts(pid) for pid in _descendants(service.process.pid)]

    assert shown
    assert not [text for text in shown if PASSWORD in text]
    assert PASSWORD not in service.said


def _visible_facts(pid: int) -> str:
    """Return the facts about a process visible to other users."""
    texts: list[str] = []
    for name in ("cmdline", "comm", "status"):
        with contextlib.suppress(OSError):
            texts.append(Path(f"/proc/{pid}/{name}").read_text(errors="replace"))
    return "\n".join(texts)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found += [int(entry.name), *_descendants(int(entry.name))]
    return found


MISTAKES = [
    f"amqp://{USER}:{PASSWORD}@@h/",
    f"amqp://{USER}:{PASSWORD}/x@h/",
    f"amqp://{USER}:{PASSWORD}?x@h/",
    f"amqp://{USER}:{PASSWORD}#x@h/",
    f"amqp://{USER}:x:{PASSWORD}@h/",
    f"amqp://{USER}:x/{PASSWORD}@h:port/",
    f"amqp://{USER}@h/{PASSWORD}@x",
    f"amqp://{USER}:{PASSWORD}@h:99999/",
    f"amqp://{USER}:{PASSWORD}%ff@h/",
    f"amqp://{USER}:{PASSWORD}@h/?heartbeat={PASSWORD}",
    f"amqp://{USER}:{PASSWORD}@h/?{PASSWORD}=1",
    f"amqp://{USER}:{PASSWORD}@h/?management=http://{USER}:{PASSWORD}@web",
    f"amqp://{USER}:{PASSWORD}@h/?token_file=x",
    f"amqp://{USER}:{PASSWORD}@h/?oauth2_token_url=http://idp/{PASSWORD}",
    f"amqps://{USER}:{PASSWORD}@h/?auth=external&certfile=x",
    f"amqp//{USER}:{PASSWORD}@h/",
    f"{USER}:{PASSWORD}@h",
    f"http://{USER}:{PASSWORD}@h/",
    f"redis://{USER}:{PASSWORD}@h:port/0",
    f"redis://{USER}:{PASSWORD}@h/none",
]


@pytest.mark.parametrize("url", MISTAKES, ids=range(len(MISTAKES)))
def test_a_url_with_a_mistake_is_not_quoted(
    url: str,
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    taskmq = Here(capsys)

    monkeypatch.setenv("TASKMQ_URL", url)
    broker = taskmq("queue", "list")
    monkeypatch.setenv("TASKMQ_URL", "memory://here")
    monkeypatch.setenv("TASKMQ_STATE", url)
    state = taskmq("job", "waiting")

    assert (broker.code, bool(broker.err)) != (0, False)
    assert PASSWORD not in broker.out + broker.err + state.out + state.err + caplog.text


def _broken(marked_login: Marked, dead_port: int, authority: Authority, tokens: TokenServer) -> list[str]:
    """Return URLs whose connection fails, each in a different way."""
    login = f"{USER}:{PASSWORD}"
    return [
        f"amqp://{login}@127.0.0.1:{dead_port}/",
        f"amqp://{login}@no-such-host.invalid/",
        f"amqp://{login}-wrong@127.0.0.1:{marked_login.port}/{marked_login.vhost}",
        f"amqp://{login}@127.0.0.1:{marked_login.port}/no-such-vhost",
        f"amqps://{login}@127.0.0.1:{marked_login.port}/{marked_login.vhost}?cafile={authority.file}",
        f"amqps://{login}@127.0.0.1:{marked_login.port}/{marked_login.vhost}?cafile=/no/such/file",
        f"amqp://{login}@127.0.0.1:{marked_login.port}/?oauth2_token_url={tokens.url}",
        f"amqp://{login}@127.0.0.1:{dead_port}/?oauth2_token_url=http://127.0.0.1:{dead_port}/",
        f"amqp://{login}@127.0.0.1:{marked_login.port}/{marked_login.vhost}?wire=plain",
        marked_login.url,
    ]


@pytest.mark.rabbitmq
def test_no_error_traceback_repr_or_address_shows_the_password(
    marked_login: Marked, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shown: list[str] = []

    async def attempt(url: str) -> None:
        try:
            broker = open_broker(url, BrokerOptions(name="marked"))
            shown.extend((repr(broker), broker.address))
            try:
                await broker.connect(timeout=1)
                await broker.declare([WorkQueue("marked")])
                await broker.publish(message("marked", "x"), timeout=5)
            finally:
                shown.append(repr(vars(broker)))
                await broker.aclose()
        except TaskMQError as error:
            shown.extend((str(error), repr(error), repr(vars(error)), traceback.format_exc()))

    async def attempt_all(urls: list[str]) -> None:
        await asyncio.gather(*map(attempt, urls))

    with PortLease(1) as lease, TokenServer(client_id="other", secret="other") as tokens:
        asyncio.run(attempt_all(_broken(marked_login, lease.ports[0], Authority(tmp_path / "ca"), tokens)))

    assert len(shown) > 30
    assert not [text for text in shown if PASSWORD in text]
    assert PASSWORD not in caplog.text


def test_the_state_does_not_show_its_password_either(redis_server: Redis, caplog: pytest.LogCaptureFixture) -> None:
    shown: list[str] = []

    async def attempt(url: str) -> None:
        try:
            state = open_state(url, BrokerOptions(name="marked"))
            shown.extend((repr(state), state.address))
            try:
                await state.results.get("no-such-job")
            finally:
                await state.aclose()
        except TaskMQError as error:
            shown.extend((str(error), repr(error), traceback.format_exc()))

    port = urlsplit(redis_server.url).port
    with PortLease(1) as lease:
        for url in (
            f"redis://{USER}:{PASSWORD}@127.0.0.1:{port}/0",
            f"redis://:{PASSWORD}@127.0.0.1:{port}/0",
            f"redis://{USER}:{PASSWORD}@127.0.0.1:{lease.ports[0]}/0",
        ):
            asyncio.run(attempt(url))

    assert len(shown) >= 9
    assert not [text for text in shown if PASSWORD in text]
    assert PASSWORD not in caplog.text


_PRODUCER = """
from taskmq import TaskMQ

app = TaskMQ(send_timeout=0.5)

@app.task(name="t")
def t() -> None: ...

t.send()
"""


def test_an_uncaught_error_of_a_producer_does_not_show_the_password(tmp_path: Path) -> None:
    with PortLease(1) as lease:
        done = subprocess.run(
            [sys.executable, "-c", _PRODUCER],
            cwd=tmp_path,
            env=environment(TASKMQ_URL=f"amqp://{USER}:{PASSWORD}@127.0.0.1:{lease.ports[0]}/"),
            capture_output=True,
            text=True,
            timeout=50,
        )

    assert done.returncode != 0
    assert "BrokerUnavailable" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
