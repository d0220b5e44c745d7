"""Isolation of a tenant in a virtual host of RabbitMQ, with queues and users of its own."""

import secrets
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from taskmq.contracts.topology_plan import Instruction, Isolation, Login, Role
from taskmq.errors import InvalidOption, TopologyMismatch
from taskmq.model.topology import WorkQueue
from taskmq_rabbitmq.admin.definitions import to_definitions
from taskmq_rabbitmq.admin.http_api import Management, ManagementNotFound, segment
from taskmq_rabbitmq.admin.policies import permissions
from taskmq_rabbitmq.model.entities import Entity
from taskmq_rabbitmq.model.url import Endpoint

_API: Final = "/api/"
_SECRET_BYTES: Final = 24
_NOT_SHOWN: Final = "PASSWORD"


def user_of(tenant: str, role: Role) -> str:
    """Return the name of the user of a role."""
    return f"{tenant}-{role}"


def isolation(
    entities: Iterable[Entity], queues: Sequence[WorkQueue], *, tenant: str, roles: Iterable[Role], app: str
) -> list[Instruction]:
    """Return the steps that create a virtual host named like the tenant, in order; a password is a placeholder.

    Args:
        entities: its objects.
        queues: the queues that the users need.
        roles: a user for each, with minimal permissions.
        app: the owner of the queues.

    Raises:
        InvalidOption: the name cannot be that of a separate virtual host.
    """
    if not tenant.strip("/") or len(tenant.encode()) > 200:
        raise InvalidOption(f"tenant {tenant!r}: must be 1 to 200 bytes and not the default virtual host")
    kinds = ("exchanges", "queues", "bindings")
    whole = to_definitions(entities, tenant, app=app)
    parts = {
        kind: [{key: value for key, value in each.items() if key != "vhost"} for each in whole[kind]]
        for kind in kinds
    }
    steps = [
        Instruction(
            about=f"virtual host {tenant}",
            shell=shlex.join(("rabbitmqctl", "add_vhost", "--", tenant)),
            request={"method": "PUT", "path": f"{_API}vhosts/{segment(tenant)}", "body": {}},
        ),
        Instruction(
            about="exchanges, queues and bindings",
            note="those of `taskmq topology export`, in this virtual host",
            request={"method": "POST", "path": f"{_API}definitions/{segment(tenant)}", "body": parts},
        ),
    ]
    for role in dict.fromkeys(roles):
        user = user_of(tenant, role)
        steps += (
            Instruction(
                about=f"user {user}",
                note="without a tag: no access to the console; the command asks for the password",
                shell=shlex.join(("rabbitmqctl", "add_user", "--", user)),
                request={
                    "method": "PUT",
                    "path": f"{_API}users/{segment(user)}",
                    "body": {"password": _NOT_SHOWN, "tags": ""},
                },
            ),
            permissions(role, queues, vhost=tenant, user=user),
        )
    return steps


async def isolate(
    management: Management, steps: Iterable[Instruction], *, endpoint: Endpoint, tenant: str, roles: Iterable[Role]
) -> Isolation:
    """Perform the steps of `isolation`. A repeated call changes nothing, and keeps passwords.

    Raises:
        AccessDenied: the user of `management` is not an administrator.
        BrokerUnavailable: the HTTP API could not be reached.
        ManagementRefused: a queue exists there with other properties, or RabbitMQ refuses another step.
        TopologyMismatch: a user of such a name exists with more permissions; nothing was changed.
    """
    users: dict[str, Role] = {}
    for role in roles:
        users[user_of(tenant, role)] = role
    known = {user for user in users if await _is_known(management, user, tenant)}
    passwords = {user: secrets.token_urlsafe(_SECRET_BYTES) for user in users if user not in known}
    for step in steps:
        request = step.request
        assert request is not None
        path, body = str(request["path"]).removeprefix(_API), request["body"]
        if path.startswith("users/"):
            user = next(name for name in users if path == f"users/{segment(name)}")
            if user in known:
                continue
            body = {"password": passwords[user], "tags": ""}
        if request["method"] == "POST":
            await management.post(path, body)
        else:
            await management.put(path, body)
    rights: list[Mapping[str, Any]] = await management.get(f"vhosts/{segment(tenant)}/permissions")
    return Isolation(
        logins=tuple(
            Login(role, user, _url(endpoint, tenant, user, passwords.get(user))) for user, role in users.items()
        ),
        others=tuple(sorted({str(each["user"]) for each in rights} - users.keys())),
    )


async def _is_known(management: Management, user: str, tenant: str) -> bool:
    try:
        found = await management.get(f"users/{segment(user)}")
    except ManagementNotFound:
        return False
    vhosts = {str(each["vhost"]) for each in await management.get(f"users/{segment(user)}/permissions")} - {tenant}
    if vhosts or found.get("tags"):
        more = f"the virtual hosts {', '.join(map(repr, sorted(vhosts)))}" if vhosts else f"the tags {found['tags']}"
        raise TopologyMismatch(f"user {user!r} exists and has {more}: delete or rename it; nothing was changed")
    return True


def _url(endpoint: Endpoint, tenant: str, user: str, password: str | None) -> str:
    scheme = "amqp" if endpoint.tls is None else "amqps"
    secret = "" if password is None else f":{quote(password, safe='')}"
    hosts = ",".join(map(str, endpoint.hosts))
    return f"{scheme}://{quote(user, safe='')}{secret}@{hosts}/{quote(tenant, safe='')}?declare=off"
