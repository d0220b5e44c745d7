"""Handshake of a connection: the client's parameters, and the properties that the server answers with."""

import os
import platform
import re
import ssl
from typing import Final

from taskmq.contracts.server_url import Host
from taskmq.version import VERSION
from taskmq_rabbitmq.amqp.pika_types import ConnectionParameters, PikaConnection, SSLOptions
from taskmq_rabbitmq.connect.credentials import CertificateCredentials, PasswordCredentials
from taskmq_rabbitmq.model.url import Endpoint

OPEN_SECONDS: Final = 10.0
"""Seconds in which a connection or a channel has to open."""

_PRODUCT: Final = "taskmq"
_TCP_SECONDS: Final = 5.0


def connection_name(name: str, role: str, *, host: str, pid: int) -> str:
    """Return a name like "taskmq worker shop:app web-3:4711 consume", from "worker shop:app" or all but the role."""
    whose = name if name.startswith(_PRODUCT) else f"{_PRODUCT} {name}"
    where = f"{host}:{pid}"
    return f"{whose} {role}" if where in whose else f"{whose} {where} {role}"


def client_properties(name: str, role: str) -> dict[str, str]:
    """Return the properties that RabbitMQ's console and log show for a connection of this process called `name`."""
    return {
        "connection_name": connection_name(name, role, host=platform.node(), pid=os.getpid()),
        "product": _PRODUCT,
        "version": VERSION,
        "platform": f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}",
        "information": f"host {platform.node()}, pid {os.getpid()}",
    }


def connection_parameters(
    endpoint: Endpoint,
    host: Host,
    credentials: PasswordCredentials | CertificateCredentials,
    *,
    context: ssl.SSLContext | None,
    name: str,
    role: str,
) -> ConnectionParameters:
    """Return the parameters of one attempt to connect to a node."""
    return ConnectionParameters(
        host=host.name,
        port=host.port,
        virtual_host=endpoint.vhost,
        credentials=credentials,
        heartbeat=endpoint.heartbeat,
        ssl_options=SSLOptions(context, host.name) if context is not None else None,
        client_properties=client_properties(name, role),
        connection_attempts=1,
        socket_timeout=_TCP_SECONDS,
        stack_timeout=OPEN_SECONDS,
    )


def server_version(amqp: PikaConnection) -> tuple[int, ...] | None:
    """Return the node's version; None if it is unknown."""
    text = (amqp.server_properties or {}).get("version")
    numbers = re.match(r"\d+(?:\.\d+)*", text) if isinstance(text, str) else None
    return tuple(map(int, numbers[0].split("."))) if numbers is not None else None


def cluster_name(amqp: PikaConnection) -> str | None:
    """Return the name of the node's cluster; None if it is unknown."""
    name = (amqp.server_properties or {}).get("cluster_name")
    return name if isinstance(name, str) else None
