"""`python -m tests.servers`: installs the programs for the tests, or runs one server by hand."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from tests.servers.chroot import SUITES, TREES, chroot_of, provision
from tests.servers.errors import ServerError
from tests.servers.packages import INSTALLABLE, install, missing
from tests.servers.postgres import PostgreSQL
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis
from tests.servers.server import Server

_DEFAULT_INSTALL = ("rabbitmq", "redis", "postgres", "pgbouncer", "amqp-tools", "chromium", "fonts")


def main() -> int:
    """Return the exit code: 0 if everything requested is available."""
    arguments = _parser().parse_args()
    try:
        match arguments.command:
            case "install":
                _install(tuple(arguments.names) or _DEFAULT_INSTALL)
            case "provision":
                _provision(arguments.trees or TREES)
            case _:
                _run(arguments.server, arguments.version)
    except ServerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    installing = commands.add_parser("install", help="install what is missing, by apt, as root")
    installing.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(INSTALLABLE)}")
    provisioning = commands.add_parser(
        "provision", help="make chroots with servers of newer Debian releases, if root"
    )
    provisioning.add_argument("trees", nargs="*", metavar="NAME", help=f"of {', '.join(TREES)}")
    running = commands.add_parser("run", help="run one server until Ctrl-C")
    running.add_argument("server", choices=["rabbitmq", "redis", "postgres"])
    running.add_argument("--version", help=f"RabbitMQ only: 3.10 (this machine's), {', '.join(SUITES)}")
    return parser


def _install(names: tuple[str, ...]) -> None:
    if unknown := set(names) - set(INSTALLABLE):
        raise ServerError(
            f"nothing to install is called {', '.join(sorted(unknown))}; there are {', '.join(INSTALLABLE)}"
        )
    packages = missing(names)
    if not packages:
        print(f"nothing is missing: {', '.join(names)}")
        return
    install(packages)
    print(f"installed {', '.join(packages)}; no service was started")


def _provision(trees: Sequence[str]) -> None:
    if os.geteuid() != 0:
        print(f"left out, as a chroot needs root: {', '.join(trees)}")
        return
    is_work = any(tree in TREES and not chroot_of(tree).exists() for tree in trees)
    if is_work and (packages := missing(("debootstrap",))):
        install(packages)
    for tree in trees:
        print(f"{tree}: {provision(tree)}", flush=True)


def _run(name: str, version: str | None) -> None:
    server: Server
    match name:
        case "rabbitmq":
            server = RabbitMQ(version)
        case "redis":
            server = Redis()
        case _:
            server = PostgreSQL()
    interrupted = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        interrupted.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    with server:
        print(server.url, flush=True)
        if isinstance(server, RabbitMQ):
            print(f"{server.management_url}  (RabbitMQ {server.version})", flush=True)
        interrupted.wait()


if __name__ == "__main__":
    sys.exit(main())
