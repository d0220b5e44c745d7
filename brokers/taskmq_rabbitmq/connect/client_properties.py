"""Client properties of a connection, as shown in RabbitMQ's console and log."""

import os
import platform
from typing import Final

from taskmq.version import VERSION

_PRODUCT: Final = "taskmq"


def connection_name(name: str, role: str, *, host: str, pid: int) -> str:
    """Return a name like "taskmq worker shop:app web-3:4711 consume", from "worker shop:app" or all but the role."""
    whose = name if name.startswith(_PRODUCT) else f"{_PRODUCT} {name}"
    where = f"{host}:{pid}"
    return f"{whose} {role}" if where in whose else f"{whose} {where} {role}"


def client_properties(name: str, role: str) -> dict[str, str]:
    """Return the properties shown for a connection of this process, which is called `name`."""
    return {
        "connection_name": connection_name(name, role, host=platform.node(), pid=os.getpid()),
        "product": _PRODUCT,
        "version": VERSION,
        "platform": f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}",
        "information": f"host {platform.node()}, pid {os.getpid()}",
    }
