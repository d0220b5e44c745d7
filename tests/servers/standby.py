"""A standby that follows a PostgreSQL server and answers reads."""

import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers.errors import ServerFailed, ServerUnavailable
from tests.servers.postgres import PostgreSQL, find_program
from tests.servers.room import room_for_servers
from tests.servers.waiting import eventually


@contextmanager
def standby_of(primary: PostgreSQL, settings: Mapping[str, str] | None = None) -> Generator[PostgreSQL]:
    """Start a standby that streams from `primary`, and close it afterwards. It takes about two seconds.

    Args:
        settings: of the standby alone.
    """
    if (program := find_program("pg_basebackup")) is None:
        raise ServerUnavailable("pg_basebackup is not installed: run `python -m tests.servers install postgres`")
    with TemporaryDirectory(prefix="taskmq-base-", dir=room_for_servers()) as folder:
        base = Path(folder) / "base"
        options = ("--checkpoint", "fast", "--wal-method", "stream", "--write-recovery-conf", "--no-sync")
        command = [program, "--pgdata", str(base), "--dbname", primary.url, *options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if result.returncode != 0:
            raise ServerFailed(f"pg_basebackup failed: {result.stderr.strip()}")
        standby = PostgreSQL(settings or {}, base=base).start()
    try:
        yield standby
    finally:
        standby.close()


def catch_up(primary: PostgreSQL, standby: PostgreSQL) -> None:
    """Wait until the standby has replayed everything that the primary has written."""
    written = primary.sql("select pg_current_wal_lsn()")
    statement = f"select pg_last_wal_replay_lsn() >= '{written}'"
    eventually(lambda: standby.sql(statement) == "t", f"{standby!r} catching up with {primary!r}")
