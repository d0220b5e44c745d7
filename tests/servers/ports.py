"""Free TCP ports on 127.0.0.1 that stay reserved, even while the server behind one is down."""

import secrets
import socket
import sys
from types import TracebackType
from typing import Self

# Below the kernel's range for outgoing connections (from 32768): none of those can take the port of a killed server
# before it is restarted.
_FIRST, _LAST = 20_000, 31_999


class PortLease:
    """Ports that no other lease on this machine holds; freed by `close` or by the end of this process."""

    def __init__(self, count: int) -> None:
        self._locks: list[socket.socket] = []
        self.ports: tuple[int, ...] = ()
        while len(self.ports) < count:
            port = _FIRST + secrets.randbelow(_LAST - _FIRST + 1)
            if port not in self.ports and self._lock(port):
                self.ports = (*self.ports, port)

    def close(self) -> None:
        for lock in self._locks:
            lock.close()
        self._locks.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self, port: int) -> bool:
        if sys.platform == "linux":
            lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                # An abstract name is a lock without a file: the kernel releases it with the last descriptor.
                lock.bind(f"\0taskmq-test-port-{port}")
            except OSError:
                lock.close()
                return False
            self._locks.append(lock)
        return _is_free(port)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Like servers: connections of an earlier server on this port may still linger.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """Whether something accepts connections there now."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
