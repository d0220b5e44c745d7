"""A private Redis Sentinel."""

from collections.abc import Sequence

from tests.servers.errors import ServerUnavailable
from tests.servers.ports import PortLease
from tests.servers.process import Command, Keeper, LocalProcess
from tests.servers.redis import Answer, Redis, redis_program
from tests.servers.server import Source

_SERVICE = "main"


class RedisSentinel(Redis):
    """A sentinel that watches a primary under the name `main`, and finds the other ones.

    Args:
        primary: at the start.
        quorum: number of sentinels that must miss it before one starts a failover.
        options: more lines of its file.
    """

    def __init__(self, primary: Redis, *, quorum: int, options: Sequence[str] = ()) -> None:
        super().__init__()
        self._lines = [
            f"sentinel monitor {_SERVICE} 127.0.0.1 {primary.port} {quorum}",
            f"sentinel down-after-milliseconds {_SERVICE} 500",
            f"sentinel failover-timeout {_SERVICE} 3000",
            *options,
        ]

    def primary(self) -> int:
        """Return the port of the primary, as this sentinel sees it."""
        answer = self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", _SERVICE)
        assert isinstance(answer, list)
        return int(str(answer[1]))

    def count_known(self, what: str) -> int:
        """Return the number of known `replicas` or (other) `sentinels`."""
        answer: Answer = self.command("SENTINEL", what, _SERVICE)
        return len(answer) if isinstance(answer, list) else 0

    def _open(self) -> Source:
        if (program := redis_program()) is None:
            raise ServerUnavailable("Redis is not installed: run `python -m tests.servers install redis`")
        lease = PortLease(1)
        (port,) = lease.ports
        self._url = f"redis://127.0.0.1:{port}"
        keeper = Keeper("sentinel")
        # It writes its findings into its file.
        file = keeper.directory / "sentinel.conf"
        file.write_text("\n".join(["bind 127.0.0.1", f"port {port}", f"dir {keeper.directory}", *self._lines, ""]))
        return LocalProcess(keeper, Command((*program, str(file), "--sentinel")), lease=lease)
