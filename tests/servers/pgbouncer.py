"""A pooler before a PostgreSQL server."""

import os
import shutil
from typing import Literal
from urllib.parse import urlsplit

from tests.servers.errors import ServerUnavailable
from tests.servers.ports import PortLease, accepts
from tests.servers.postgres import unprivileged_user
from tests.servers.process import Command, Keeper, LocalProcess
from tests.servers.server import Server, Source

PoolMode = Literal["session", "transaction", "statement"]


class PgBouncer(Server):
    """PgBouncer of this machine, before the server of `url`.

    Args:
        url: of a database whose user needs no password.
        size: maximum of connections to a database.
    """

    def __init__(self, url: str, *, mode: PoolMode, size: int = 20) -> None:
        super().__init__()
        self._server = urlsplit(url)
        self._mode = mode
        self._size = size
        self._port = 0

    @property
    def url(self) -> str:
        """Return the URL of the same database through the pooler."""
        self._running_source()
        return self._server._replace(netloc=f"{self._server.username}@127.0.0.1:{self._port}").geturl()

    def _open(self) -> Source:
        program = find_pgbouncer()
        if program is None:
            raise ServerUnavailable(
                "PgBouncer is not installed: run `python -m tests.servers install pgbouncer` "
                "(or `apt-get install pgbouncer`)"
            )
        user = unprivileged_user() if os.geteuid() == 0 else None
        keeper, lease = Keeper("pgbouncer", owner=user), PortLease(1)
        (self._port,) = lease.ports
        users, config = keeper.directory / "users.txt", keeper.directory / "pgbouncer.ini"
        users.write_text(f'"{self._server.username}" ""\n')
        config.write_text(
            f"[databases]\n* = host={self._server.hostname} port={self._server.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\npool_mode = {self._mode}\ndefault_pool_size = {self._size}\n"
        )
        return LocalProcess(keeper, Command((program, str(config)), user=user), lease=lease)

    def _answers(self) -> bool:
        return accepts(self._port)


def find_pgbouncer() -> str | None:
    """Return the program on this machine."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
