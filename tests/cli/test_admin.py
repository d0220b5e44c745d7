"""`taskmq admin` and `taskmq audit`."""

import asyncio
import io
import os
import pty
import re
import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.model.identity import digest
from taskmq_sql import open_job_store
from tests.cli.kit import Here, Result, command, environment, run_process
from tests.unit.app_kit import new_file_store

_PASSWORD = "ostrich lamp violet nine"
_TOKEN = re.compile(r"tmq_[\w-]{43}")

Run = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return new_file_store(tmp_path)


@pytest.fixture
def admin(taskmq: Here, store: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command at the store with JSON output; `text` is its standard input."""

    def run(*tokens: str, text: str = "") -> Result:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return taskmq("-o", "json", "--store", store, *tokens)

    return run


def _seal(store: str) -> None:
    """Seal the audit, as a scheduler does each second."""

    async def seal() -> None:
        opened = open_job_store(store, BrokerOptions(name="test"))
        await opened.identity.audit.seal()
        await opened.aclose()

    asyncio.run(seal())


def test_the_first_admin_is_created_once_with_a_password_from_standard_input(admin: Run) -> None:
    made = admin("admin", "init", text=f"{_PASSWORD}\nmore")
    again = admin("admin", "init", "other", text=f"{_PASSWORD}\n")

    assert (made.code, made.data["user"]) == (0, "admin")
    assert again.code == 6
    assert "already has an admin" in again.err
    assert [(row["tenant"], row["role"]) for row in admin("admin", "role", "list").data] == [("*", "admin")]


@pytest.mark.parametrize(("text", "reason"), [("", "no password"), ("\n", "no password"), ("short\n", "too short")])
def test_there_is_no_default_password(admin: Run, text: str, reason: str) -> None:
    refused = admin("admin", "init", text=text)

    assert refused.code == 2
    assert reason in refused.err
    assert admin("admin", "user", "list").data == []


def test_a_password_cannot_be_a_command_line_option(admin: Run) -> None:
    assert admin("admin", "init", "--password", _PASSWORD).code == 2
    assert admin("admin", "user", "add", "ann", "--password", _PASSWORD).code == 2


def _types(folder: Path, *tokens: str, answers: Sequence[tuple[str, str]]) -> Result:
    """Run a command on a terminal; type each answer after its question."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(*tokens), cwd=folder, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    with process, open(ours, "rb", buffering=0) as terminal:  # noqa: PTH123 - a file descriptor
        printed, waiting = b"", list(answers)
        try:
            while chunk := terminal.read(4096):
                printed += chunk
                if waiting and waiting[0][0].encode() in printed:
                    os.write(ours, f"{waiting.pop(0)[1]}\n".encode())
        except OSError:
            # Linux reports a closed terminal this way.
            pass
        return Result(process.wait(40), printed.decode(), "")


def test_a_password_is_typed_twice_on_a_terminal_and_not_shown(tmp_path: Path) -> None:
    tokens = ("--store", f"sqlite:///{tmp_path / 'jobs.db'}", "admin", "init")
    question = "Password of admin: "

    differ = _types(tmp_path, *tokens, answers=[(question, _PASSWORD), ("Again: ", "another one")])
    made = _types(tmp_path, *tokens, answers=[(question, _PASSWORD), ("Again: ", _PASSWORD)])

    assert differ.code == 2
    assert "the passwords do not match" in differ.out
    assert made.code == 0, made.out
    assert _PASSWORD not in differ.out + made.out


def test_a_user_gets_and_loses_a_role_and_a_token(admin: Run, store: str) -> None:
    admin("admin", "tenant", "add", "acme", "--description", "makes anvils")
    admin("admin", "user", "add", "ann", "--email", "ann@example.org", text=f"{_PASSWORD}\n")
    assert (
        admin(
            "admin", "role", "add", "ann", "operator", "--tenant", "acme", "--task", "billing.*", "--group", "finance"
        ).code
        == 0
    )

    made = admin("admin", "token", "add", "ann", "ci", "--scope", "jobs.*", "--tenant", "acme", "--expires", "90d")

    assert _TOKEN.fullmatch(made.data["token"])
    assert made.data["scopes"] == ["jobs.bulk", "jobs.change", "jobs.read", "jobs.submit"]
    assert made.data["expires_at"] > made.data["created"]
    (listed,) = admin("admin", "token", "list", "ann").data
    assert (listed["id"], listed["user"], listed["tenants"]) == (made.data["id"], "ann", ["acme"])
    assert "token" not in listed
    shown = admin("admin", "user", "show", "ANN").data
    assert shown["memberships"] == [
        {"tenant": "acme", "role": "operator", "tasks": ["billing.*"], "groups": ["finance"]}
    ]
    assert [token["name"] for token in shown["tokens"]] == ["ci"]
    everything = Path(store.removeprefix("sqlite:///")).read_bytes()
    assert made.data["token"].encode() not in everything
    assert _PASSWORD.encode() not in everything

    assert admin("admin", "token", "remove", made.data["id"], "--yes").code == 0
    assert admin("admin", "role", "remove", "ann", "--tenant", "acme", "--yes").code == 0
    assert admin("admin", "token", "list").data == []
    assert admin("admin", "role", "list", "acme").data == []


def test_a_token_created_on_the_command_line_is_known_to_the_store(admin: Run, store: str) -> None:
    admin("admin", "user", "add", "ann", "--no-password")
    secret = admin("admin", "token", "add", "ann", "ci").data["token"]

    async def find() -> str | None:
        opened = open_job_store(store, BrokerOptions(name="test"))
        found = await opened.identity.credentials.find_token(digest(secret))
        await opened.aclose()
        return None if found is None else found[1].user.name

    assert asyncio.run(find()) == "ann"


def test_users_are_disabled_enabled_and_removed(admin: Run) -> None:
    admin("admin", "user", "add", "ann", text=f"{_PASSWORD}\n")

    assert admin("admin", "user", "disable", "ann").code == 0
    assert admin("admin", "user", "list").data[0]["disabled"]
    assert admin("admin", "user", "enable", "ann").code == 0
    assert admin("admin", "user", "list").data[0]["disabled"] is None
    assert admin("admin", "user", "password", "ann", text="seven green bicycles\n").code == 0
    unasked = admin("admin", "user", "remove", "ann")
    assert (unasked.code, "pass --yes" in unasked.err) == (1, True)
    assert admin("admin", "user", "remove", "ann", "--yes").code == 0
    assert admin("admin", "user", "list").data == []


def test_tenants_are_added_disabled_enabled_and_removed(admin: Run) -> None:
    assert admin("admin", "tenant", "add", "acme").data["name"] == "acme"
    assert admin("admin", "tenant", "add", "acme").code == 6
    assert admin("admin", "tenant", "add", "a b").code == 2

    assert admin("admin", "tenant", "disable", "acme").code == 0
    assert admin("admin", "tenant", "list").data[0]["disabled"]
    assert admin("admin", "tenant", "enable", "acme").code == 0
    assert admin("admin", "tenant", "remove", "acme").code == 1
    assert admin("admin", "tenant", "remove", "acme", "--yes").code == 0
    assert admin("admin", "tenant", "list").data == []


@pytest.mark.parametrize(
    ("tokens", "code"),
    [
        (("admin", "user", "show", "nobody"), 3),
        (("admin", "user", "password", "nobody"), 3),
        (("admin", "token", "add", "nobody", "ci"), 3),
        (("admin", "token", "list", "nobody"), 3),
        (("admin", "token", "remove", "none", "--yes"), 3),
        (("admin", "tenant", "disable", "none"), 3),
        (("admin", "role", "add", "nobody", "viewer", "--instance"), 3),
        (("admin", "role", "add", "nobody", "viewer"), 2),
        (("admin", "role", "add", "nobody", "viewer", "--instance", "--tenant", "acme"), 2),
        (("admin", "role", "add", "nobody", "king", "--instance"), 2),
        (("admin", "token", "add", "nobody", "ci", "--scope", "everything"), 2),
        (("audit", "list", "--user", "nobody"), 3),
        (("audit", "verify", "--head", "x"), 2),
    ],
)
def test_a_missing_or_impossible_object_is_reported_by_the_exit_code(
    admin: Run, tokens: tuple[str, ...], code: int
) -> None:
    assert admin(*tokens, text=f"{_PASSWORD}\n").code == code


def test_without_a_store_the_commands_name_the_setting(taskmq: Here) -> None:
    result = taskmq("admin", "user", "list")

    assert result.code == 2
    assert "need a store" in result.err


def test_permissions_are_listed_without_a_store(taskmq: Here) -> None:
    rows = taskmq("-o", "jsonl", "admin", "role", "permissions").rows

    assert {"permission": "jobs.read", "on": "tenant", "role": "viewer"}.items() <= rows[0].items()


def test_tables_for_people_contain_instants_and_no_null(
    taskmq: Here, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    taskmq("--store", store, "admin", "user", "add", "ann", "--no-password")
    taskmq("--store", store, "admin", "tenant", "add", "acme")
    taskmq("--store", store, "admin", "role", "add", "ann", "viewer", "--tenant", "acme")
    token = taskmq("--store", store, "admin", "token", "add", "ann", "ci")

    printed = [
        taskmq("--store", store, "admin", *tokens).out
        for tokens in (
            ("user", "list"),
            ("user", "show", "ann"),
            ("tenant", "list"),
            ("role", "list"),
            ("token", "list"),
        )
    ]

    assert all("None" not in each and "null" not in each for each in printed)
    assert "viewer of acme" in printed[1]
    assert re.search(r"ci \([0-9a-f-]{36}\)", printed[1])
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", printed[0])
    assert _TOKEN.search(token.out)
    assert "not shown again" in token.err


def test_the_audit_shows_user_action_and_address(admin: Run) -> None:
    admin("admin", "tenant", "add", "acme")
    admin("admin", "user", "add", "ann", "--no-password")
    admin("admin", "role", "add", "ann", "viewer", "--tenant", "acme")

    everything = admin("audit", "list").data
    roles = admin("audit", "list", "--action", "role.", "--tenant", "acme", "-n", "1").data

    assert [entry["action"] for entry in everything] == ["role.set", "user.add", "tenant.add"]
    assert [entry["action"] for entry in roles] == ["role.set"]
    (entry,) = roles
    assert entry["via"] == "cli"
    assert entry["user"]
    assert entry["address"]
    assert entry["after"] == {"tenant": "acme", "role": "viewer", "tasks": ["*"]}
    assert admin("audit", "list", "--until", "2020-01-01").data == []
    assert len(admin("audit", "list", "--since", "2020-01-01T00:00:00+01:00").data) == 3
    assert admin("audit", "list", "--user", "ann").data == []


def test_the_audit_is_verified_and_names_a_changed_entry(admin: Run, store: str, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        admin("admin", "tenant", "add", name)
    assert admin("audit", "verify").data["unsealed"] == 3
    _seal(store)

    whole = admin("audit", "verify")
    known = admin("audit", "verify", "--head", whole.data["head"])
    other = admin("audit", "verify", "--head", f"2:{'0' * 64}")
    short = admin("audit", "verify", "--head", f"9:{'0' * 64}")

    assert (whole.code, whole.data["is_whole"], whole.data["entries"], whole.data["unsealed"]) == (0, True, 3, 0)
    assert known.code == 0
    assert (other.code, "position 2 has a different hash" in other.err) == (1, True)
    assert (short.code, "ends at position 3" in short.err) == (1, True)

    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("update audit set subject = 'x' where number = 2")
    changed = admin("audit", "verify")
    assert (changed.code, changed.data["is_whole"], changed.data["entries"]) == (1, False, 1)
    assert "position 2 (entry 2) is not what was sealed" in changed.err


def test_the_audit_is_exported_in_the_order_of_its_chain(admin: Run, store: str) -> None:
    for name in ("a", "b"):
        admin("admin", "tenant", "add", name)
    admin("admin", "user", "add", "ann", "--no-password")
    _seal(store)
    admin("admin", "user", "remove", "ann", "--yes")

    lines = admin("audit", "export").rows

    assert [line["position"] for line in lines] == [1, 2, 3]
    assert [line["subject"] for line in lines[:2]] == ["a", "b"]
    assert all(re.fullmatch(r"[0-9a-f]{64}", line["hash"]) for line in lines)
    assert [line["what"] is None for line in lines] == [False, False, True]
    verified = admin("audit", "verify").data
    assert (verified["is_whole"], verified["erased"]) == (True, 1)


@pytest.mark.nightly(
    "tests/cli/test_admin.py::test_the_first_admin_is_created_once_with_a_password_from_standard_input"
)
def test_the_command_itself_reads_a_secret_from_a_pipe(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"

    made = run_process(tmp_path, "--store", store, "admin", "init", "root", text=_PASSWORD)

    assert made.code == 0, made.err
    assert _PASSWORD not in made.out + made.err
