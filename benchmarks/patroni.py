"""`python -m benchmarks.patroni`: duration of a failover by Patroni after the PostgreSQL leader's host is lost.

    setup    etcd and two Patroni members, each with a PostgreSQL server
    rounds   kill (-9) the leader's Patroni and PostgreSQL; time until a URL with both hosts accepts writes again
    last     kill only PostgreSQL, while its Patroni keeps running

Requires Patroni with its etcd client and psycopg, and etcd (`apt-get install patroni etcd-server`); `--patroni` and
`--etcd` name the programs. If started by root, the benchmark runs them as the user postgres, who needs read access.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pwd
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from tests.servers.ports import PortLease
from tests.servers.postgres import find_program, unprivileged_user

_PATIENCE: Final = 300
_LEADS: Final = ("primary", "master")
_FOLLOWS: Final = ("running", "streaming")
_CONFIG: Final = """
scope: bench
name: {name}
restapi: {{listen: "127.0.0.1:{api}", connect_address: "127.0.0.1:{api}"}}
etcd3: {{hosts: "127.0.0.1:{etcd}"}}
bootstrap:
  dcs:
    ttl: {ttl}
    loop_wait: {loop_wait}
    retry_timeout: {retry_timeout}
    synchronous_mode: {synchronous}
  initdb: [{{encoding: UTF8}}, data-checksums]
postgresql:
  listen: "127.0.0.1:{port}"
  connect_address: "127.0.0.1:{port}"
  data_dir: "{folder}/{name}"
  bin_dir: "{programs}"
  pgpass: "{folder}/{name}.pgpass"
  use_pg_rewind: true
  pg_hba: ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust", "local all all trust"]
  parameters: {{unix_socket_directories: "{folder}", shared_buffers: 32MB}}
  authentication:
    superuser: {{username: postgres, password: bench}}
    replication: {{username: replicator, password: bench}}
"""


@dataclass
class _Member:
    """One Patroni member and its PostgreSQL server."""

    name: str
    port: int
    api: int
    folder: Path
    must_be_synchronous: bool
    start: Callable[[], "subprocess.Popen[bytes]"]
    process: "subprocess.Popen[bytes] | None" = None

    def begin(self) -> None:
        """Start the member unless it runs."""
        if self.process is None or self.process.poll() is not None:
            self.process = self.start()

    def status(self) -> dict[str, Any]:
        """Return the status that the member reports; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.api}/patroni", timeout=2) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            found = json.load(error)
        except (OSError, ValueError):
            return {}
        return found

    def leads(self) -> bool:
        """Whether the member accepts writes."""
        return self.status().get("role") in _LEADS

    def follows(self) -> bool:
        """Whether the member may be promoted."""
        status = self.status()
        is_synchronous = not self.must_be_synchronous or bool(status.get("sync_standby"))
        return status.get("role") not in (None, *_LEADS) and status.get("state") in _FOLLOWS and is_synchronous

    def end(self) -> None:
        """Stop Patroni, and PostgreSQL too if a killed Patroni left it running."""
        if self.process is not None:
            _end(self.process)
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The pid may have been reused since the file was written.
            if str(self._data).encode() in Path(f"/proc/{self._postmaster()}/cmdline").read_bytes():
                self.kill(with_patroni=False)

    @property
    def _data(self) -> Path:
        return self.folder / self.name

    def _postmaster(self) -> int:
        return int((self._data / "postmaster.pid").read_text(encoding="ascii").split()[0])

    def kill(self, *, with_patroni: bool) -> None:
        """Kill PostgreSQL, and Patroni too to simulate the loss of the host."""
        pid = self._postmaster()
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=False).stdout
        if with_patroni and self.process is not None:
            self.process.kill()
            self.process.wait()
        for each in (pid, *map(int, children.split())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.patroni")
    parser.add_argument(
        "--ttl",
        type=int,
        default=30,
        help="time to live of the leader's key in seconds; other timeouts derive from it",
    )
    parser.add_argument(
        "--synchronous", action="store_true", help="replicate synchronously: no confirmed write is lost"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patroni", default="patroni", help="command of Patroni")
    parser.add_argument("--etcd", default="etcd", help="command of etcd")
    options = parser.parse_args(arguments)
    with _members(options) as members:
        asyncio.run(_measure(members, options))
    return 0


async def _measure(members: Sequence[_Member], options: argparse.Namespace) -> None:
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in members)
    url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
    first, second = members
    first.begin()
    await _until(first.leads)
    kind = "synchronous" if options.synchronous else "asynchronous"
    for number in range(options.rounds + 1):
        second.begin()
        leader, other = (first, second) if first.leads() else (second, first)
        await _until(other.follows)
        await _write(url)
        # Kill the leader at an average distance from its last renewal.
        await asyncio.sleep(options.ttl / 4)
        is_host = number < options.rounds
        leader.kill(with_patroni=is_host)
        began = time.monotonic()
        async with asyncio.timeout(_PATIENCE):
            while not await _try(lambda: _write(url)):
                await asyncio.sleep(0.02)
        what = "Patroni and PostgreSQL" if is_host else "PostgreSQL alone"
        print(f"ttl {options.ttl} s, {kind}, {what}: {time.monotonic() - began:.1f} s", flush=True)
        first, second = other, leader


async def _write(url: str) -> None:
    connection: Any = await asyncpg.connect(url, timeout=2)
    try:
        await connection.execute("create table if not exists bench (); insert into bench default values")
    finally:
        connection.terminate()


async def _try(call: Callable[[], Awaitable[None]]) -> bool:
    try:
        await call()
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        # InternalClientError if the server dies during the handshake.
        return False
    return True


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not await asyncio.to_thread(holds):
            await asyncio.sleep(0.2)


@contextlib.contextmanager
def _members(options: argparse.Namespace) -> Iterator[list[_Member]]:
    if (server := find_program("postgres")) is None:
        raise SystemExit("PostgreSQL is not installed: run `python -m tests.servers install postgres`")
    user = unprivileged_user() if os.geteuid() == 0 else None
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="taskmq-patroni-")))
        if user is not None:
            entry = pwd.getpwnam(user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        etcd, peer, *ports = stack.enter_context(PortLease(6)).ports

        def start(name: str, argv: Sequence[str]) -> "subprocess.Popen[bytes]":
            with (folder / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    argv,
                    user=user,
                    group=None if user is None else pwd.getpwnam(user).pw_gid,
                    extra_groups=None if user is None else [],
                    cwd=folder,
                    env={**os.environ, "HOME": str(folder)},
                    stdout=log,
                    stderr=log,
                )
            stack.callback(_end, process)
            return process

        client, other = f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peer}"
        client_urls = ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", other]
        peer_urls = ["--initial-advertise-peer-urls", other, "--initial-cluster", f"default={other}"]
        start("etcd", [*shlex.split(options.etcd), "--data-dir", str(folder / "etcd"), *client_urls, *peer_urls])
        found: list[_Member] = []
        for name, port, api in (("db1", ports[0], ports[1]), ("db2", ports[2], ports[3])):
            config = folder / f"{name}.yml"
            # Patroni requires loop_wait + 2 x retry_timeout <= ttl.
            waits = {"loop_wait": options.ttl // 3, "retry_timeout": options.ttl // 3}
            text = _CONFIG.format(
                name=name,
                port=port,
                api=api,
                etcd=etcd,
                folder=folder,
                ttl=options.ttl,
                synchronous=str(options.synchronous).lower(),
                programs=Path(server).parent,
                **waits,
            )
            config.write_text(text, encoding="utf-8")
            argv = [*shlex.split(options.patroni), str(config)]
            member = _Member(name, port, api, folder, options.synchronous, partial(start, name, argv))
            stack.callback(member.end)
            found.append(member)
        yield found


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Stop the process; Patroni then stops its PostgreSQL."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
