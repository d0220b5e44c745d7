"""Resolution of host names without the loop's executor.

asyncio uses its thread pool, which accepts no work once the main thread has ended, although other threads may still
publish. Its threads also keep a process from ending while a name server does not answer.
"""

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable
from typing import Any

from taskmq_rabbitmq.amqp.pika_types import IOServices

Addresses = list[tuple[Any, ...]]


class ResolvingServices(IOServices):
    """pika's interface to the loop, with its own resolution of names."""

    def getaddrinfo(  # noqa: PLR0917 - as pika calls it
        self,
        host: str,
        port: int,
        on_done: Callable[..., None],
        family: int = 0,
        socktype: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> "_Lookup":
        """Call `on_done` with the addresses or the error, unless the lookup is cancelled."""
        answer = self.get_native_ioloop().create_task(resolve(host, port, family, socktype, proto, flags))
        return _Lookup(answer, on_done)


class _Lookup:
    """A lookup that can be cancelled until its result is delivered.

    pika's own reference cannot be cancelled in the turn of the loop between the answer and its delivery. An abandoned
    connection would connect all the same, and fail or stay open at the broker.
    """

    def __init__(self, answer: "asyncio.Task[Addresses]", on_done: Callable[..., None]) -> None:
        self._answer = answer
        self._on_done: Callable[..., None] | None = on_done
        answer.add_done_callback(self._deliver)

    def cancel(self) -> bool:
        """Drop the result; return whether it was still to be delivered."""
        was_pending = self._on_done is not None
        self._on_done = None
        self._answer.cancel()
        return was_pending

    def _deliver(self, answer: "asyncio.Task[Addresses]") -> None:
        on_done, self._on_done = self._on_done, None
        if answer.cancelled():
            return
        error = answer.exception()
        if on_done is not None:
            on_done(answer.result() if error is None else error)


async def resolve(host: str, port: int, *how: int) -> Addresses:
    """Return the result of `socket.getaddrinfo`, called in a thread of its own unless `host` is an address.

    Raises:
        OSError: the name has no address.
    """
    if _is_address(host):
        return list(socket.getaddrinfo(host, port, *how))
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Addresses] = loop.create_future()

    def hand_over(found: Addresses | OSError | UnicodeError) -> None:
        if answer.done():
            return
        if isinstance(found, list):
            answer.set_result(found)
        else:
            answer.set_exception(found)

    def ask() -> None:
        found: Addresses | OSError | UnicodeError
        try:
            found = list(socket.getaddrinfo(host, port, *how))
        except (OSError, UnicodeError) as error:
            found = error
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(hand_over, found)

    threading.Thread(target=ask, name=f"taskmq looks up {host}", daemon=True).start()
    return await answer


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
