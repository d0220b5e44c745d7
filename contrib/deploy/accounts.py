# ruff: noqa: INP001 - a program copied into an image, not a module of a package
"""Create the accounts of a deployment: for each part a broker user and, if it needs one, a database role.

    python accounts.py users     # once, and after a change of queues or passwords; needs administrators
    python accounts.py grants    # after each `taskmq store upgrade`; needs the owner of the tables

`users` reads $TASKMQ_APP, $TASKMQ_URL (as an administrator of the broker), $RABBITMQ_API (its management API, such as
http://admin:password@rabbitmq:15672), $POSTGRES_ADMIN (the database, as an administrator), and the passwords
$OWNER_PASSWORD, $WORKER_PASSWORD, $SCHEDULER_PASSWORD, $SERVER_PASSWORD and, if there are beats, $BEAT_PASSWORD.
`grants` reads $TASKMQ_STORE of the owner. Both may run again at any time; they change only what differs.

| part      | broker user                          | database role                                             |
|-----------|--------------------------------------|-----------------------------------------------------------|
| worker    | taskmq-worker, role worker           | none                                                      |
| scheduler | taskmq-scheduler, role scheduler     | taskmq_scheduler, which acts as the owner: it creates and |
|           |                                      | drops daily partitions, and seals the audit               |
| server    | taskmq-server, role server           | taskmq_server, which adds to the audit and cannot change  |
|           |                                      | it                                                        |
| beat      | taskmq-beat, role beat               | none                                                      |
| upgrade   | none                                 | taskmq, the owner of the tables                           |
"""

import asyncio
import base64
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

PARTS: Final = ("worker", "scheduler", "server", "beat")
ROLES: Final = {"taskmq": "OWNER", "taskmq_scheduler": "SCHEDULER", "taskmq_server": "SERVER"}

OWNER_RIGHTS: Final = """
do $$ begin execute format('grant connect, create on database %I to taskmq', current_database()); end $$;
grant taskmq to taskmq_scheduler;
alter role taskmq_scheduler set role taskmq;
"""
SERVER_RIGHTS: Final = """
grant usage on schema taskmq to taskmq_server;
grant select, insert, update, delete on all tables in schema taskmq to taskmq_server;
grant usage on all sequences in schema taskmq to taskmq_server;
revoke update, delete on taskmq.audit from taskmq_server;
revoke insert, update, delete on taskmq.audit_seal from taskmq_server;
revoke all on taskmq.report_key from taskmq_server;
"""


def make_broker_users() -> None:
    """Create the queues, and a user with its role's permissions for each part with a password."""
    taskmq("topology", "apply")
    for part in PARTS:
        password = os.environ.get(f"{part.upper()}_PASSWORD")
        if password:
            user = f"taskmq-{part}"
            request("PUT", f"/api/users/{user}", {"password": password, "tags": ""})
            for one in json.loads(taskmq("topology", "permissions", "--role", part, "--user", user, "-o", "json")):
                request(**one["request"])


def taskmq(*words: str) -> str:
    """Run a taskmq command; return its output."""
    command = [sys.executable, "-m", "taskmq", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def request(method: str, path: str, body: dict[str, Any]) -> None:
    """Send a request to RabbitMQ's management API."""
    api = urllib.parse.urlsplit(os.environ["RABBITMQ_API"])
    login = f"{urllib.parse.unquote(api.username or '')}:{urllib.parse.unquote(api.password or '')}"
    headers = {
        "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
        "Content-Type": "application/json",
    }
    address = f"{api.scheme}://{api.netloc.rpartition('@')[2]}{path}"
    content = json.dumps(body).encode()
    asked = urllib.request.Request(address, content, headers, method=method)  # noqa: S310 - an administrator names it
    with urllib.request.urlopen(asked, timeout=30):  # noqa: S310 - as above
        sys.stderr.write(f"{method} {path}\n")


async def connect_to(url: str) -> Any:
    """Connect to the database."""
    connect: Any = asyncpg.connect  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return await connect(url)


async def make_roles() -> None:
    """Create the database roles, or update their passwords."""
    connection = await connect_to(os.environ["POSTGRES_ADMIN"])
    try:
        for role, part in ROLES.items():
            verb = (
                "alter" if await connection.fetchval("select 1 from pg_roles where rolname = $1", role) else "create"
            )
            password = os.environ[f"{part}_PASSWORD"]
            await connection.execute(
                await connection.fetchval(
                    f"select format('{verb} role %I login password %L', $1::text, $2::text)", role, password
                )
            )
        await connection.execute(OWNER_RIGHTS)
    finally:
        await connection.close()


async def grant_rights() -> None:
    """Grant the server's role its rights on the present tables."""
    connection = await connect_to(os.environ["TASKMQ_STORE"])
    try:
        await connection.execute(SERVER_RIGHTS)
    finally:
        await connection.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["users"]:
        asyncio.run(make_roles())
        make_broker_users()
    elif sys.argv[1:] == ["grants"]:
        asyncio.run(grant_rights())
    else:
        sys.exit(__doc__)
