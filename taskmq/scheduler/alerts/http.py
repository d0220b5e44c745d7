"""POST requests over HTTP/1.1 to validated addresses.

A URL entered by a user must not reach private services. The name is therefore resolved once, each of its addresses
has to be public, and the connection uses the address that was checked. Redirects are not followed.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from taskmq.errors import TaskMQError
from taskmq.model.history.addresses import is_public

_TIMEOUT: Final = 15.0
_LONGEST_HEAD: Final = 16_384
_PORTS: Final = {"http": 80, "https": 443}


class DeliveryFailed(TaskMQError):
    """Raised when a receiver did not accept a notice; the message gives the reason, but not the content.

    Attributes:
        is_final: whether retrying is useless.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


async def post(url: str, body: bytes, *, headers: Mapping[str, str], allows_private: bool) -> int:
    """Send JSON. Returns the status of the response, 200 to 299.

    Raises:
        DeliveryFailed: the receiver did not accept it.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        async with asyncio.timeout(_TIMEOUT):
            address = await _address(host, port, allows_private=allows_private)
            tls = ssl.create_default_context() if parts.scheme == "https" else None
            reader, writer = await asyncio.open_connection(
                address, port, ssl=tls, server_hostname=host if tls else None, limit=_LONGEST_HEAD
            )
            try:
                writer.write(_head(host, parts.netloc, path, len(body), headers) + body)
                await writer.drain()
                status = await _status(reader, host)
            finally:
                writer.close()
    except TimeoutError as error:
        raise DeliveryFailed(f"{host}:{port} did not answer within {_TIMEOUT:g} s") from error
    except UnicodeError as error:
        raise DeliveryFailed(f"{host} is not a valid host name", is_final=True) from error
    except (OSError, asyncio.LimitOverrunError, asyncio.IncompleteReadError) as error:
        raise DeliveryFailed(f"{host}:{port}: {type(error).__name__}: {error}") from error
    if not 200 <= status < 300:
        # A client error is permanent, except for too many requests and the like.
        raise DeliveryFailed(
            f"{host}:{port} answered {status}", is_final=400 <= status < 500 and status not in {408, 425, 429}
        )
    return status


async def _address(host: str, port: int, *, allows_private: bool) -> str:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses:
        raise DeliveryFailed(f"{host} has no address")
    if not allows_private and (private := [each for each in addresses if not is_public(each)]):
        raise DeliveryFailed(
            f"{host} is {private[0]}, which is not a public address: set TASKMQ_WEBHOOK_ALLOW_PRIVATE=1 if webhooks "
            "may be in this network",
            is_final=True,
        )
    return addresses[0]


def _head(host: str, netloc: str, path: str, length: int, headers: Mapping[str, str]) -> bytes:
    del host
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {netloc}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        "Connection: close",
        "User-Agent: taskmq",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii", "replace")


async def _status(reader: asyncio.StreamReader, host: str) -> int:
    line = (await reader.readuntil(b"\r\n")).split(b" ", 2)
    if len(line) < 2 or not line[0].startswith(b"HTTP/1.") or not line[1].isdigit():
        raise DeliveryFailed(f"{host} answered, but not in HTTP")
    return int(line[1])
