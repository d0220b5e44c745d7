"""The files of contrib/deploy give each component only the permissions that it needs."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest
import yaml

from tests.cli.kit import PATIENCE, Started, environment, run_here
from tests.docs.blocks import ROOT
from tests.servers import eventually
from tests.servers.errors import ServerFailed
from tests.servers.postgres import PostgreSQL
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis, ask

DEPLOY: Final = ROOT / "contrib" / "deploy"
ACCOUNTS: Final = DEPLOY / "accounts.py"
_PARTS: Final = ("worker", "scheduler", "server")
_OWNERS: Final = {"upgrade", "grants"}
_ADMINISTRATORS: Final = {"accounts", "rabbitmq", "postgres", "grafana", "redis"}
_COMPOSE: Final[dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
_SERVICES: Final[dict[str, dict[str, Any]]] = _COMPOSE["services"]
_OURS: Final = {name: service for name, service in _SERVICES.items() if "build" in service}
_KUBERNETES: Final[Sequence[dict[str, Any]]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "taskmq.yml").read_text())
)
_PODS: Final = {
    part["metadata"]["name"]: part["spec"]["template"]["spec"]
    for part in _KUBERNETES
    if part["kind"] in {"Job", "Deployment"}
}
_UNITS: Final = {path.stem.removeprefix("taskmq-"): path.read_text() for path in (DEPLOY / "systemd").iterdir()}


def _containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


# Accounts


def _user_of(url: str) -> str:
    return url.partition("://")[2].partition(":")[0]


def test_each_part_of_the_compose_file_has_its_own_accounts() -> None:
    for part in _PARTS:
        assert _user_of(_SERVICES[part]["environment"]["TASKMQ_URL"]) == f"taskmq-{part}"
        assert _SERVICES[part]["environment"]["TASKMQ_URL"].endswith("?declare=off")
    assert "TASKMQ_STORE" not in _SERVICES["worker"]["environment"]
    assert _user_of(_SERVICES["scheduler"]["environment"]["TASKMQ_STORE"]) == "taskmq_scheduler"
    assert _user_of(_SERVICES["server"]["environment"]["TASKMQ_STORE"]) == "taskmq_server"


def test_each_password_of_the_compose_file_is_only_where_it_is_needed() -> None:
    used: dict[str, set[str]] = {}
    for name, service in _SERVICES.items():
        for password in re.findall(r"\$\{([A-Z]+)_PASSWORD", json.dumps(service.get("environment", {}))):
            used.setdefault(password, set()).add(name)

    assert used == {
        "RABBITMQ": {"accounts", "rabbitmq"},
        "POSTGRES": {"accounts", "postgres"},
        "GRAFANA": {"grafana"},
        "REDIS": {"redis"},
        "OWNER": {"accounts", "upgrade", "grants"},
        **{part.upper(): {"accounts", "redis", part} for part in _PARTS},
    }


def test_a_worker_of_the_compose_file_has_no_access_to_the_database() -> None:
    networks = {name: set(service["networks"]) for name, service in _SERVICES.items()}

    assert networks["postgres"] == {"database"}
    assert {name for name, of in networks.items() if "database" in of} == {
        *("accounts", "upgrade", "grants", "scheduler", "server", "postgres")
    }
    assert _COMPOSE["networks"]["database"] == {"internal": True}


def test_one_time_steps_run_in_order() -> None:
    after = {name: set(service.get("depends_on", ())) for name, service in _OURS.items()}

    assert after["accounts"] == {"rabbitmq", "postgres"}
    assert after["upgrade"] == {"accounts"}
    assert after["grants"] == {"upgrade"}
    assert all("grants" in after[part] for part in _PARTS)


def test_each_pod_has_its_own_secret() -> None:
    secrets = {
        name: {source["secretRef"]["name"] for one in _containers(pod) for source in one["envFrom"]}
        for name, pod in _PODS.items()
    }

    assert secrets == {
        "taskmq-accounts": {"taskmq-accounts"},
        "taskmq-upgrade": {"taskmq-owner"},
        **{f"taskmq-{part}": {f"taskmq-{part}"} for part in _PARTS},
    }
    assert "TASKMQ_STORE" not in json.dumps(_PODS)


def test_each_unit_has_its_own_user_and_environment() -> None:
    assert set(_UNITS) == {*_PARTS, "beat", "upgrade"}
    for part, unit in _UNITS.items():
        assert re.findall(r"^EnvironmentFile=(.*)$", unit, re.MULTILINE) == [f"/etc/taskmq/{part}"]
        assert re.findall(r"^User=(.*)$", unit, re.MULTILINE) == [f"taskmq-{part}"]
    assert "No TASKMQ_STORE" in _UNITS["worker"]
    assert "No TASKMQ_STORE" in _UNITS["beat"]


# Privileges of processes on their host


def test_no_image_uses_the_latest_tag() -> None:
    images = [service["image"] for service in _SERVICES.values() if "image" in service]
    images += [one["image"] for pod in _PODS.values() for one in _containers(pod)]

    assert len(images) > 8
    assert [image for image in images if ":" not in image or image.endswith(":latest")] == []
    assert ":latest" not in (DEPLOY / "Dockerfile").read_text()


def test_containers_of_the_compose_file_do_not_run_as_root() -> None:
    for name, service in _SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        # The servers' own images start as root, and switch to their user.
        assert not service.get("cap_add") or name in {"rabbitmq", "postgres"}, name
        assert not service.get("privileged"), name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
    assert all(service["read_only"] for service in _OURS.values())


def _redis_settings() -> list[str]:
    """Return the Redis configuration of the compose file, with a password for each component."""
    shell = _SERVICES["redis"]["command"][-1].replace("$$", "$")
    script, written, start = shell.partition(" > /tmp/redis.conf && exec redis-server /tmp/redis.conf")
    assert written
    assert not start
    passwords = {f"{part.upper()}_PASSWORD": f"{part}-secret" for part in _PARTS} | {"REDISCLI_AUTH": "root-secret"}
    done = subprocess.run(["sh", "-c", script], env=passwords, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_redis_requires_a_password() -> None:
    assert "requirepass root-secret" in _redis_settings()
    assert "PASSWORD:" not in " ".join(_SERVICES["redis"]["command"])
    for part in _PARTS:
        of_part = f"redis://taskmq-{part}:${{{part.upper()}_PASSWORD:?}}@redis:6379/0"
        assert _SERVICES[part]["environment"]["TASKMQ_STATE"] == of_part


def test_each_part_has_a_redis_user_with_the_rights_on_the_redis_page(redis_server: Redis) -> None:
    (rights,) = re.findall(r"ACL SETUSER taskmq on >SECRET (.*)", (ROOT / "docs" / "redis.md").read_text())
    users = [line.split() for line in _redis_settings() if line.startswith("user ")]
    assert [user[1] for user in users] == [f"taskmq-{part}" for part in _PARTS]

    for _, name, is_on, password, *more in users:
        assert more == rights.split()
        redis_server.command("ACL", "SETUSER", name, is_on, password, *more)
        url = redis_server.url.replace("://", f"://{name}:{password[1:]}@")
        try:
            assert ask(url, "SET", "taskmq:a", "1") == "OK"
            for refused in (["SET", "other", "1"], ["CONFIG", "GET", "*"], ["FLUSHALL"], ["ACL", "LIST"]):
                with pytest.raises(ServerFailed, match=r"(?i)noperm|no permissions"):
                    ask(url, *refused)
        finally:
            redis_server.command("ACL", "DELUSER", name)
            redis_server.command("DEL", "taskmq:a")


def test_pods_do_not_run_as_root_and_have_no_cluster_token() -> None:
    for name, pod in _PODS.items():
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["runAsUser"] == 10001, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in _containers(pod):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"], name
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name


def test_network_policies_cover_every_pod() -> None:
    covered: set[str] = set()
    for part in _KUBERNETES:
        if part["kind"] == "NetworkPolicy":
            selector = part["spec"]["podSelector"]
            covered |= {selector.get("matchLabels", {}).get("app")} - {None}
            for expression in selector.get("matchExpressions", ()):
                covered |= set(expression["values"])
            assert part["spec"]["policyTypes"] == ["Ingress"]
    labels = {
        part["spec"]["template"]["metadata"]["labels"]["app"]
        for part in _KUBERNETES
        if part["kind"] in {"Job", "Deployment"}
    }

    assert covered == labels == set(_PODS)


@pytest.mark.parametrize("part", sorted(_UNITS))
def test_a_unit_uses_every_systemd_restriction(part: str) -> None:
    unit = _UNITS[part]
    for line in ("CapabilityBoundingSet=", "UMask=0077", "NoNewPrivileges=yes", "ProtectSystem=strict"):
        assert f"\n{line}\n" in unit
    assert "\nSystemCallFilter=@system-service\n" in unit
    assert re.search(r"^RestrictAddressFamilies=AF_INET AF_INET6", unit, re.MULTILINE)
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    said = subprocess.run(
        [analyze, "security", "--offline=true", str(DEPLOY / "systemd" / f"taskmq-{part}.service")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert float(exposure) < 2.0


# The image


def test_the_image_runs_as_a_user_who_owns_none_of_its_code() -> None:
    text = (DEPLOY / "Dockerfile").read_text()

    assert "--chown" not in text
    assert "\nUSER 10001:10001\n" in text
    assert '\nENTRYPOINT ["tini", "--", "taskmq"]\n' in text
    assert "--require-hashes" in text


def test_the_requirements_of_the_image_are_those_of_the_lock_file() -> None:
    """`uv export` writes the file; each of its versions and hashes must be in the lock file."""
    locked = (ROOT / "uv.lock").read_text()
    text = (DEPLOY / "requirements.txt").read_text()
    pinned = re.findall(r"^([a-z0-9._-]+)==([^ ;\\]+)", text, re.MULTILINE)
    hashes = re.findall(r"--hash=(sha256:[0-9a-f]{64})", text)

    assert {"pika", "msgspec", "redis", "asyncpg", "litestar", "uvicorn", "uvloop"} <= {name for name, _ in pinned}
    assert [pin for pin in pinned if f'name = "{pin[0]}"\nversion = "{pin[1]}"' not in locked] == []
    assert len(hashes) > 500
    assert [one for one in hashes if one not in locked] == []


def test_secrets_in_the_folder_stay_out_of_the_image() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()

    assert {"**/.env", "**/*.env", "**/.git"} <= set(ignored)


# The accounts, on real servers


_APP: Final = """\
from taskmq import TaskMQ

app = TaskMQ()


@app.task
async def add(number: int) -> int:
    return number + 1
"""


def _with_login(url: str, user: str, *, more: str = "") -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:secret7@{parts.netloc.rpartition('@')[2]}")) + more


@pytest.fixture(scope="module")
def accounts(
    tmp_path_factory: pytest.TempPathFactory, rabbitmq_server: RabbitMQ, postgres_server: PostgreSQL
) -> Iterator[dict[str, str]]:
    """Create accounts like the deployment's jobs; return the URLs of each component for broker and store."""
    tmp_path = tmp_path_factory.mktemp("accounts")
    amqp_url = rabbitmq_server.create_vhost()
    (tmp_path / "shop.py").write_text(_APP)
    database = postgres_server.create_database()
    passwords = {f"{part}_PASSWORD": "secret7" for part in ("OWNER", "WORKER", "SCHEDULER", "SERVER")}
    administrator = {
        "TASKMQ_APP": "shop:app",
        "TASKMQ_URL": amqp_url,
        "RABBITMQ_API": rabbitmq_server.management_url,
        "POSTGRES_ADMIN": database,
    }
    owner = _with_login(database, "taskmq")
    _make(tmp_path, "users", {**administrator, **passwords})
    assert run_here(tmp_path, "store", "upgrade", env={"TASKMQ_STORE": owner}).code == 0
    _make(tmp_path, "grants", {"TASKMQ_STORE": owner})
    # Both may run again.
    _make(tmp_path, "users", {**administrator, **passwords})
    _make(tmp_path, "grants", {"TASKMQ_STORE": owner})
    yield {
        **{part: _with_login(amqp_url, f"taskmq-{part}", more="?declare=off") for part in _PARTS},
        "owner_store": owner,
        "scheduler_store": _with_login(database, "taskmq_scheduler"),
        "server_store": _with_login(database, "taskmq_server"),
    }
    postgres_server.drop_database(database)
    rabbitmq_server.delete_vhost(amqp_url)
    for part in _PARTS:
        rabbitmq_server.http("DELETE", f"/api/users/taskmq-{part}")


def _make(folder: Path, what: str, env: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, str(ACCOUNTS), what],
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly(
    "tests/integration/test_rabbitmq_privileges.py::test_a_task_completes_among_users_with_only_the_permissions_of_their_role"
)
@pytest.mark.rabbitmq
@pytest.mark.timeout(400)
def test_the_parts_of_a_deployment_work_with_the_created_accounts(tmp_path: Path, accounts: dict[str, str]) -> None:
    (tmp_path / "shop.py").write_text(_APP)
    env = {"TASKMQ_APP": "shop:app"}
    worker = {**env, "TASKMQ_URL": accounts["worker"]}
    scheduler = {**env, "TASKMQ_URL": accounts["scheduler"], "TASKMQ_STORE": accounts["scheduler_store"]}
    server = {**env, "TASKMQ_URL": accounts["server"], "TASKMQ_STORE": accounts["server_store"]}

    with (
        Started(tmp_path, "worker", env=worker) as working,
        Started(tmp_path, "scheduler", env=scheduler) as scheduling,
        Started(tmp_path, "server", "--port", "0", "--development", env=server) as serving,
    ):
        working.says("waiting for jobs")
        scheduling.says("taskmq scheduler: app")
        serving.says("taskmq server: app")
        submitted = run_here(tmp_path, "job", "submit", "shop.add", "--args", "[1]", "--job-id", "one", env=server)
        assert submitted.code == 0, submitted.err

        def state() -> str:
            found: str = run_here(tmp_path, "job", "show", "one", "-o", "json", env=server).data["state"]
            return found

        eventually(lambda: state() == "succeeded", "a job that the worker has run", within=PATIENCE)
        for each in (working, scheduling, serving):
            assert "ACCESS_REFUSED" not in each.said, each.said
            assert "permission denied" not in each.said, each.said


@pytest.mark.nightly("tests/docs/test_security_page.py::test_the_role_on_the_page_only_appends_to_the_audit")
@pytest.mark.rabbitmq
@pytest.mark.timeout(400)
def test_the_server_role_only_appends_to_the_audit(accounts: dict[str, str]) -> None:
    async def is_refused(store: str, statement: str) -> bool:
        connection = await asyncpg.connect(store)
        try:
            await connection.execute(statement)
        except asyncpg.InsufficientPrivilegeError:
            return True
        finally:
            await connection.close()
        return False

    for statement in (
        "update taskmq.audit set action = 'x'",
        "delete from taskmq.audit",
        "delete from taskmq.audit_seal",
        "create table taskmq.mine (x int)",
        "drop table taskmq.job",
        "select * from taskmq.report_key",
        "set role taskmq",
    ):
        assert asyncio.run(is_refused(accounts["server_store"], statement)), statement
        assert not asyncio.run(is_refused(accounts["scheduler_store"], "delete from taskmq.audit where false"))


def test_the_created_permissions_are_those_of_the_security_page() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    (block,) = re.findall(r"```sql\n(create role taskmq_server .*?)```", page, re.DOTALL)

    _, rights = ACCOUNTS.read_text().split('SERVER_RIGHTS: Final = """\n')
    assert block.split("\n", 1)[1] == rights.partition('"""')[0]


def test_the_program_that_creates_accounts_explains_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ACCOUNTS)], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True
    )

    assert done.returncode == 1
    assert "taskmq-worker, role worker" in done.stderr
