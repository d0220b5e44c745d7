"""Servers in containers, for users and as a fallback of the tests, on a real engine and images of this machine."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from taskmq.errors import UnsupportedFeature
from taskmq.testing.containers import RabbitMQContainer, RedisContainer, engine_answers
from tests.docs.blocks import ROOT, write_files
from tests.docs.page_shell import PYTEST
from tests.servers import PostgreSQL, RabbitMQ, Redis, ServerUnavailable, eventually
from tests.servers.images import postgres_image, rabbitmq_image, redis_image
from tests.servers.podman import Podman

pytestmark = pytest.mark.timeout(400)

_LISTENS = "0A"
_STORE_TEST = """\
import subprocess
import sys


def test_a_database_is_made_ready_for_jobs(postgres_url):
    command = [sys.executable, "-m", "taskmq", "store", "upgrade", "--store", postgres_url]
    subprocess.run(command, check=True)


def test_a_server_that_was_killed_has_kept_its_data(redis_container):
    with redis_container.fresh() as url:
        assert redis_container.run("redis-cli", "set", "key", "value") == "OK\\n"
        redis_container.kill()
        redis_container.start()
        assert redis_container.run("redis-cli", "get", "key") == "value\\n"
        assert redis_container.url == url
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[Podman]:
    with Podman() as podman:
        podman.add_image(rabbitmq_image(), "rabbitmq:4-management", "rabbitmq:3.10-management")
        podman.add_image(redis_image(), "redis:7", "redis:of-ours")
        podman.add_image(postgres_image(), "postgres:17")
        yield podman


@pytest.fixture(autouse=True)
def _environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TASKMQ_TEST_AMQP_URL", "TASKMQ_TEST_REDIS_URL", "TASKMQ_TEST_POSTGRES_URL"):
        monkeypatch.delenv(variable, raising=False)
    if "engine" in request.fixturenames:
        engine: Podman = request.getfixturevalue("engine")
        for name, value in engine.environment.items():
            monkeypatch.setenv(name, value)


@pytest.mark.campaign
def test_the_example_on_the_page_and_each_fixture_work(engine: Podman, tmp_path: Path) -> None:
    write_files(ROOT / "docs" / "testing.md", tmp_path)
    (tmp_path / "test_stores.py").write_text(_STORE_TEST)

    ran = subprocess.run(
        [sys.executable, *PYTEST, "-q", "-W", "error", "test_on_servers.py", "test_stores.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )

    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.campaign
def test_an_image_is_named_by_argument_or_environment(engine: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    with RedisContainer("redis:of-ours", options=("--databases", "3")) as redis:
        assert redis.run("redis-cli", "config", "get", "databases").split() == ["databases", "3"]
    monkeypatch.setenv("TASKMQ_REDIS_IMAGE", "redis:of-ours")
    assert RedisContainer().image == "redis:of-ours"
    monkeypatch.setenv("TASKMQ_RABBITMQ_IMAGE", "rabbitmq:of-ours")
    assert RabbitMQContainer().image == "rabbitmq:of-ours"


@pytest.mark.campaign
def test_a_server_that_ends_at_its_start_is_an_error_with_its_log(engine: Podman) -> None:
    with (
        pytest.raises(TimeoutError, match=r"(?s)has exited.*no-such-option"),
        RedisContainer(options=("--no-such-option",)),
    ):
        pass


@pytest.mark.campaign
def test_a_server_is_published_only_to_this_machine(engine: Podman) -> None:
    with RedisContainer() as redis:
        port = urlsplit(redis.url).port
        sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]

    listens = [one[1] for one in sockets if one[1].endswith(f":{port:04X}") and one[3] == _LISTENS]
    assert listens == [f"0100007F:{port:04X}"]


@pytest.mark.campaign
def test_rabbitmq_of_the_tests_lives_and_dies_in_a_container(engine: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_TEST_SERVERS", "containers")

    with RabbitMQ("3.10") as server:
        url = server.create_vhost()
        assert url.rpartition("/")[2] in server.ctl("list_vhosts")
        assert server.evaluate("1 + 1.") == "{ok, 2}"
        server.kill()
        server.restart()
        assert server.http("GET", f"/api/vhosts/{url.rpartition('/')[2]}")
        assert server.pids() == []


@pytest.mark.campaign
def test_redis_of_the_tests_freezes_in_a_container(engine: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_TEST_SERVERS", "containers")

    with Redis() as server:
        server.command("SET", "key", "value")
        server.pause()
        with pytest.raises(TimeoutError):
            server.command("PING")
        server.resume()
        eventually(lambda: server.command("GET", "key") == "value", "the server going on")
        server.stop()
        with pytest.raises(OSError, match="refused"):
            server.command("PING")
        server.start()
        assert server.command("GET", "key") == "value"


@pytest.mark.campaign
def test_postgres_of_the_tests_copies_databases_in_a_container(
    engine: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKMQ_TEST_SERVERS", "containers")

    with PostgreSQL() as server:
        one = server.create_database()
        server.sql("CREATE TABLE sums AS SELECT 1 AS sum", url=one)
        other = server.create_database(template=one)
        server.kill()
        server.start()
        assert server.sql("SELECT sum FROM sums", url=other) == "1"


@pytest.mark.nightly("tests/integration/test_containers.py::test_without_podman_the_error_says_what_to_install")
def test_without_an_engine_the_error_says_what_to_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")

    assert not engine_answers()
    with pytest.raises(UnsupportedFeature, match="podman system service"), RedisContainer():
        pass
    monkeypatch.setenv("TASKMQ_TEST_SERVERS", "containers")
    with pytest.raises(ServerUnavailable, match=r"DOCKER_HOST"):
        Redis().start()


def test_without_podman_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ServerUnavailable, match=r"podman and runc is missing: .* tests\.servers install podman"):
        Podman().start()


@pytest.mark.campaign
def test_an_engine_leaves_nothing_behind() -> None:
    with Podman() as podman:
        podman.add_image(redis_image(), "redis:7")
        directory = Path(podman.url.removeprefix("unix://")).parent
        with pytest.MonkeyPatch.context() as environment:
            for name, value in podman.environment.items():
                environment.setenv(name, value)
            redis = RedisContainer().start()
            assert redis.failure() is None
        pids = podman.pids()

    assert not directory.exists()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert podman.network not in Path("/proc/net/dev").read_text()
