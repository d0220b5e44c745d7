"""A private PostgreSQL server."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from taskmq.testing.containers import PostgresContainer, engine_answers
from tests.servers.errors import ServerFailed, ServerUnavailable
from tests.servers.ports import PortLease, accepts
from tests.servers.process import Command, Keeper, LocalProcess
from tests.servers.server import REMEDY, External, Server, Source, run_inside, wants_containers

if TYPE_CHECKING:
    import psycopg

_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    # Safe for a killed server (commits are written), not for a killed machine, which no test does.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
}
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class PostgreSQL(Server):
    """A cluster of databases with the superuser postgres, who needs no password.

    Sources, in this order: $TASKMQ_TEST_POSTGRES_URL, the programs of this machine, a container.

    Args:
        settings: for a server of this machine's programs; they override those for tests.
        base: an initial base backup of another one; it requires the programs of this machine.
    """

    def __init__(self, settings: Mapping[str, str] = _NO_SETTINGS, *, base: Path | None = None) -> None:
        super().__init__()
        self._settings = settings
        self._url = ""
        self._base = base
        self._version: int | None = None
        self._administering = Lock()
        self._administrator: psycopg.Connection[tuple[object, ...]] | None = None

    @property
    def url(self) -> str:
        self._running_source()
        return self._url

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 5432

    def sql(self, statement: str, *, url: str | None = None) -> str:
        """Return the output of psql for one statement: a line a row, columns separated by |."""
        options = ("-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-c", statement)
        source = self._running_source()
        if isinstance(source, PostgresContainer):
            path = urlsplit(url or self.url).path.removeprefix("/")
            return run_inside(source, "psql", "-U", "postgres", "-d", path, *options).strip()
        if (psql := find_program("psql")) is None:
            raise ServerUnavailable("psql is not installed: run `python -m tests.servers install postgres`")
        result = subprocess.run(
            [psql, *options, url or self.url], capture_output=True, text=True, timeout=60, check=False
        )
        if result.returncode != 0:
            raise ServerFailed(f"psql failed: {result.stderr.strip()}")
        return result.stdout.strip()

    def create_database(self, *, template: str | None = None) -> str:
        """Create a database and return its URL: an empty one, or a copy of one without connections."""
        name = f"test_{secrets.token_hex(6)}"
        source = "" if template is None else f' TEMPLATE "{urlsplit(template).path.removeprefix("/")}"'
        if template is not None and self._copies_files():
            # In half the time of the server's default method, block by block through its log.
            source += " STRATEGY FILE_COPY"
        self._administer(f'CREATE DATABASE "{name}"{source}')
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def drop_database(self, url: str) -> None:
        """Drop a database; the server closes its connections."""
        name = urlsplit(url).path.removeprefix("/")
        self._administer(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _administer(self, statement: str) -> None:
        """Run a statement that creates or drops databases, on one shared connection.

        psql would be a process per statement; a new connection costs the server more than the statement.
        """
        import psycopg

        with self._administering:
            try:
                if self._administrator is not None:
                    try:
                        self._administrator.execute(statement.encode())
                        return
                    except psycopg.OperationalError:
                        # If the server has ended since the last one, nothing was run: it starts over below.
                        if not self._administrator.closed:
                            raise
                self._administrator = psycopg.connect(self.url, autocommit=True, connect_timeout=60)
                self._administrator.execute(statement.encode())
            except psycopg.Error as error:
                raise ServerFailed(f"{statement} failed: {error}") from error

    def close(self) -> None:
        if self._administrator is not None:
            self._administrator.close()
            self._administrator = None
        super().close()

    def __repr__(self) -> str:
        return f"<PostgreSQL {self._url}>"

    def _copies_files(self) -> bool:
        if self._version is None:
            self._version = int(self.sql("SHOW server_version_num"))
        return self._version >= 150_000

    def _open(self) -> Source:
        if self._base is None and (url := os.environ.get("TASKMQ_TEST_POSTGRES_URL")):
            self._url = url
            return External("TASKMQ_TEST_POSTGRES_URL")
        programs = None if wants_containers() else (find_program("postgres"), find_program("initdb"))
        if programs is not None and (server := programs[0]) is not None and (initdb := programs[1]) is not None:
            return self._local(server, initdb)
        if self._base is None and engine_answers():
            container = PostgresContainer(ports=self._lease_ports(1))
            self._url = container.url
            return container
        raise ServerUnavailable(
            "PostgreSQL is not installed: run `python -m tests.servers install postgres` "
            f"(or `apt-get install postgresql`), or {REMEDY}, or set TASKMQ_TEST_POSTGRES_URL"
        )

    def _local(self, server: str, initdb: str) -> Source:
        user = unprivileged_user() if os.geteuid() == 0 else None
        keeper = Keeper("postgres", owner=user)
        try:
            if self._base is None:
                _initialise(initdb, keeper.directory / "data", user)
            else:
                _copy(self._base, keeper.directory / "data", user)
        except BaseException:
            keeper.close()
            raise
        lease = PortLease(1)
        (port,) = lease.ports
        self._point_to(port)
        options = {**_OPTIONS, **self._settings, "unix_socket_directories": str(keeper.directory), "port": str(port)}
        argv = [server, "-D", str(keeper.directory / "data")]
        for key, value in options.items():
            argv += ["-c", f"{key}={value}"]
        # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for every client to leave.
        return LocalProcess(keeper, Command(tuple(argv), user=user, stop_signal=signal.SIGINT), lease=lease)

    def _point_to(self, port: int) -> None:
        self._url = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def _answers(self) -> bool:
        if not accepts(self.port, urlsplit(self.url).hostname or "localhost"):
            return False
        try:
            return self.sql("SELECT 1") == "1"
        except ServerFailed:
            return False


def is_postgres_installed() -> bool:
    """Whether the programs of a private server are on this machine."""
    return all(find_program(program) for program in ("postgres", "initdb", "psql"))


def unprivileged_user() -> str:
    """Return a user other than root, as which PostgreSQL refuses to run: the user of Debian's package."""
    return "postgres" if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else "nobody"


def _initialise(initdb: str, data: Path, user: str | None) -> None:
    command = [initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    result = subprocess.run(
        command,
        user=user,
        group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [],
        cwd=data.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise ServerFailed(f"initdb failed: {result.stderr}")


def _copy(base: Path, data: Path, user: str | None) -> None:
    shutil.copytree(base, data)
    data.chmod(0o700)
    if user is not None:
        for path in (data, *data.rglob("*")):
            shutil.chown(path, user)


def find_program(program: str) -> str | None:
    """Return the path of a program: the newest of Debian's versions, or the one in PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*"), key=lambda path: path.name.zfill(4), reverse=True)
    for version in versions:
        if (version / "bin" / program).exists():
            return str(version / "bin" / program)
    return shutil.which(program)
