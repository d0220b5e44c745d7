"""`taskmq admin restored`: a restored backup restores no access that was revoked since."""

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from taskmq import TaskMQ
from taskmq.access import PasswordHasher
from taskmq.cli.exits import OK, USAGE
from taskmq.contracts.broker import BrokerOptions
from taskmq_sql import open_job_store
from tests.cli.kit import Result, run_here
from tests.unit.app_kit import new_url
from tests.unit.server.kit import build_served

_PASSWORD = "ostrich lamp violet nine\n"


class _Instance:
    """An instance in a file, administered by commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "jobs.db"
        self.url = f"sqlite:///{self.file}"

    def __call__(self, *words: str, text: str = _PASSWORD) -> Result:
        return run_here(self.folder, *words, env={"TASKMQ_STORE": self.url}, text=text)

    def admin(self, *words: str) -> dict[str, Any]:
        """Run a command of `taskmq admin`; return its output."""
        done = self("admin", *words, "-o", "json")
        assert done.code == OK, done.err
        return dict(json.loads(done.out)) if done.out.strip() else {}

    def back_up(self) -> str:
        """Make a copy; return the instant."""
        (self.folder / "backup.db").write_bytes(self.file.read_bytes())
        return datetime.now(UTC).isoformat()

    def restore(self) -> None:
        for name in ("jobs.db-wal", "jobs.db-shm"):
            (self.folder / name).unlink(missing_ok=True)
        self.file.write_bytes((self.folder / "backup.db").read_bytes())

    def export(self) -> str:
        """Export the audit to a file after schedulers have sealed it."""

        async def seal() -> None:
            store = open_job_store(self.url, BrokerOptions(name="test"))
            await store.identity.audit.seal()
            await store.aclose()

        asyncio.run(seal())
        done = self("audit", "export")
        assert done.code == OK
        (self.folder / "audit.jsonl").write_text(done.out)
        return str(self.folder / "audit.jsonl")

    @contextmanager
    def server(self) -> Generator["TestClient[Any]"]:
        with TestClient(build_served(TaskMQ(new_url(), store=self.url))) as client:
            yield client

    def statuses(self, *tokens: str) -> list[int]:
        """Return the HTTP status for each token."""
        with self.server() as client:
            return [
                client.get("/api/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code
                for token in tokens
            ]

    def steps(self, *words: str) -> set[tuple[bool, str, str]]:
        done = self("admin", "restored", *words, "-o", "json")
        assert done.code == OK, done.err
        return {(row["is_done"], row["what"], row["subject"]) for row in json.loads(done.out)}


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Instance:
    """Create users and their tokens: of a tenant, `aad` an admin, `bea` an operator, `cas` and `dot` viewers."""
    # A test needs no expensive hash.
    monkeypatch.setattr("taskmq.access.PasswordHasher", partial(PasswordHasher, time_cost=1, memory_cost=64))
    found = _Instance(tmp_path)
    found.admin("init", "root")
    found.admin("tenant", "add", "acme")
    for name, role in (("aad", "admin"), ("bea", "operator"), ("cas", "viewer"), ("dot", "viewer")):
        found.admin("user", "add", name)
        found.admin("role", "add", name, role, "--tenant", "acme")
    return found


def test_a_restored_backup_restores_no_revoked_access(instance: _Instance) -> None:
    tokens = {name: instance.admin("token", "add", name, "ci") for name in ("root", "aad", "bea")}
    secrets = [str(tokens[name]["token"]) for name in ("root", "aad", "bea")]
    with instance.server() as client:
        login = {"username": "cas", "password": _PASSWORD.strip()}
        session = client.post("/api/v1/auth/login", json=login).json()
        assert client.get("/api/v1/jobs").status_code == 200
        cookies = dict(client.cookies)
    assert session
    began = instance.back_up()
    instance.admin("user", "disable", "aad")
    instance.admin("token", "remove", str(tokens["bea"]["id"]), "--yes")
    instance.admin("user", "password", "cas")
    instance.admin("role", "remove", "dot", "--tenant", "acme", "--yes")
    instance.admin("role", "add", "bea", "viewer", "--tenant", "acme")
    instance.admin("user", "add", "eve")
    export = instance.export()
    instance.restore()
    assert instance.statuses(*secrets) == [200, 200, 200]

    steps = instance.steps("--since", began, "--audit", export)

    assert instance.statuses(*secrets) == [200, 401, 401]
    with instance.server() as client:
        client.cookies.update(cookies)
        assert client.get("/api/v1/jobs").status_code == 401
        client.cookies.clear()
        assert client.post("/api/v1/auth/login", json=login).status_code == 401
    assert steps == {
        (True, "session ended", "cas"),
        (True, "user disabled", "aad"),
        (True, "token revoked", f"{tokens['bea']['id']} (ci)"),
        (True, "old password disabled", "cas"),
        (False, "needs a password: taskmq admin user password cas", "cas"),
        (True, "role removed: viewer of acme", "dot"),
        (True, "role reduced from operator of acme to viewer", "bea"),
        (False, "user added since the backup; add it again if wanted", "eve"),
        (False, "token is valid; revoke it if unwanted", f"{tokens['root']['id']} (ci) of root"),
        (False, "token is valid; revoke it if unwanted", f"{tokens['aad']['id']} (ci) of aad"),
    }
    said = instance("audit", "list", "--action", "store.", "-o", "json").out
    assert '"has_export": true' in said or '"has_export":true' in said
    # A second run changes nothing.
    again = instance.steps("--since", began, "--audit", export)
    assert {step for step in again if step[0]} == set()


@pytest.mark.nightly("tests/cli/test_restored.py::test_a_restored_backup_restores_no_revoked_access")
def test_all_tokens_are_revoked_without_an_export_of_the_audit(instance: _Instance) -> None:
    token = str(instance.admin("token", "add", "bea", "ci")["token"])
    began = instance.back_up()
    instance.admin("user", "disable", "bea")
    instance.restore()

    steps = instance.steps("--since", began, "--revoke-tokens")

    assert instance.statuses(token) == [401]
    assert {what for is_done, what, _ in steps if is_done} == {"token revoked"}
    assert [subject for is_done, _, subject in steps if not is_done] == ["users, roles, tenants"]


@pytest.mark.nightly("tests/cli/test_restored.py::test_a_restored_backup_restores_no_revoked_access")
def test_access_granted_after_the_backup_is_not_restored(instance: _Instance) -> None:
    began = instance.back_up()
    instance.admin("role", "add", "cas", "admin", "--tenant", "acme")
    instance.admin("user", "disable", "bea")
    instance.admin("user", "enable", "bea")
    instance.admin("tenant", "add", "north")
    export = instance.export()
    instance.restore()

    steps = instance.steps("--since", began, "--audit", export)

    assert steps == {(False, "is viewer of acme, was admin with * before the restore", "cas")}


@pytest.mark.nightly("tests/cli/test_restored.py::test_a_restored_backup_restores_no_revoked_access")
def test_deleted_tenants_and_users_are_deleted_again(instance: _Instance) -> None:
    instance.admin("tenant", "add", "north")
    erased = instance.admin("user", "show", "dot")["id"]
    began = instance.back_up()
    instance.admin("tenant", "disable", "acme")
    instance.admin("tenant", "remove", "north", "--yes")
    instance.admin("user", "remove", "dot", "--yes")
    export = instance.export()
    instance.restore()

    steps = instance.steps("--since", began, "--audit", export)

    assert steps == {
        (True, "tenant disabled", "acme"),
        (True, "tenant removed", "north"),
        (True, "user erased", erased),
    }


@pytest.mark.nightly("tests/cli/test_restored.py::test_a_restored_backup_restores_no_revoked_access")
def test_the_last_admin_of_the_backup_remains_and_confirmation_is_required(instance: _Instance) -> None:
    began = instance.back_up()
    instance.admin("role", "add", "aad", "admin", "--instance")
    instance.admin("role", "remove", "root", "--instance", "--yes")
    export = instance.export()
    instance.restore()

    steps = instance.steps("--since", began, "--audit", export)

    assert [(is_done, subject) for is_done, _, subject in steps] == [(False, "root")]
    assert "the instance would have no admin" in next(iter(steps))[1]


@pytest.mark.nightly("tests/cli/test_restored.py::test_a_restored_backup_restores_no_revoked_access")
def test_a_broken_or_foreign_export_is_refused(instance: _Instance, tmp_path: Path) -> None:
    began = instance.back_up()
    instance.admin("user", "disable", "bea")
    lines = Path(instance.export()).read_text().splitlines()
    (tmp_path / "other").mkdir()
    other = _Instance(tmp_path / "other")
    other.admin("init", "root")
    foreign = other.export()

    for text, words in (
        (
            "\n".join(line.replace('"disabled"', '"x"').replace("user.add", "user.xxx") for line in lines),
            "is damaged",
        ),
        ("\n".join(lines[1:]), "is damaged"),
        ("{}", "line 1 is not an entry"),
        ("[", "line 1 is not an entry"),
        ("", "belongs to another store"),
        (Path(foreign).read_text(), "belongs to another store"),
    ):
        (tmp_path / "given.jsonl").write_text(text)
        refused = instance("admin", "restored", "--since", began, "--audit", str(tmp_path / "given.jsonl"))
        assert (refused.code, words in refused.err) == (USAGE, True), (refused.err, words)
    missing = instance("admin", "restored", "--since", began, "--audit", str(tmp_path / "nowhere"))
    assert (missing.code, "cannot read the file" in missing.err) == (USAGE, True)
