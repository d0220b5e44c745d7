"""Who takes part, and how each is started and asked."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["CONTENDERS", "PEERS", "Contender", "Setup"]

PEERS: Final = Path(__file__).parent / "peers"


@dataclass(frozen=True, slots=True)
class Setup:
    """One way to start a worker.

    Attributes:
        argv: the command, after the folder of the environment's programs is known.
        instances: how many times it is started.
        fill: the producer's mode that sends what this setup is to drain.
        env: further environment.
    """

    argv: Callable[[Path], list[str]]
    instances: int = 1
    fill: str = "bulk"
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Contender:
    """One library.

    Attributes:
        requires: what is installed into its environment; empty: this checkout's own.
        kinds: of queues that it can use.
        modes: of enqueueing, by the name in the table: the producer's mode and its environment.
        delays: whether it has delayed tasks without further parts.
    """

    name: str
    script: str
    requires: tuple[str, ...]
    setups: Mapping[str, Setup]
    modes: Mapping[str, tuple[str, Mapping[str, str]]]
    kinds: tuple[str, ...] = ("classic", "quorum")
    delays: bool = True


_CONFIRM: Final = {"BENCH_CONFIRM": "1"}


def _celery(*pool: str) -> Callable[[Path], list[str]]:
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    # Two nodes of one name would talk to each other.
    return lambda bin_: [
        *(str(bin_ / "celery"), "-A", "celery_peer", "worker", "--hostname", f"bench-{secrets.token_hex(4)}@%h"),
        *quiet,
        *pool,
    ]


def _dramatiq(processes: int, threads: int) -> Callable[[Path], list[str]]:
    counts = ["--processes", str(processes), "--threads", str(threads)]
    return lambda bin_: [str(bin_ / "dramatiq"), "dramatiq_peer", *counts, "--skip-logging"]


def _taskiq(workers: int) -> Callable[[Path], list[str]]:
    options = ["--workers", str(workers), "--max-async-tasks", "100", "--ack-type", "when_executed"]
    quiet = ["--no-configure-logging", "--log-level", "ERROR"]
    return lambda bin_: [str(bin_ / "taskiq"), "worker", "taskiq_peer:broker", *options, *quiet]


def _faststream(bin_: Path) -> list[str]:
    return [str(bin_ / "python"), "-c", "import asyncio, faststream_peer; asyncio.run(faststream_peer.app.run())"]


def _taskmq(processes: int, concurrency: int = 100) -> Callable[[Path], list[str]]:
    counts = ["--processes", str(processes), "--concurrency", str(concurrency)]
    return lambda bin_: [str(bin_ / "taskmq"), "-q", "worker", "taskmq_peer:app", *counts]


CONTENDERS: Final = (
    Contender(
        "taskmq",
        "taskmq_peer.py",
        (),
        {
            "1": Setup(_taskmq(1)),
            "1 threads": Setup(_taskmq(1, 8), fill="sync"),
            "1 processes": Setup(_taskmq(1, 2), fill="process"),
            "2": Setup(_taskmq(2)),
        },
        {"one by one": ("one", {}), "100 concurrent": ("concurrent", {}), "bulk": ("bulk", {})},
    ),
    Contender(
        "celery",
        "celery_peer.py",
        ("celery==5.7.0",),
        {
            "1": Setup(_celery("--pool", "solo")),
            "1 threads": Setup(_celery("--pool", "threads", "--concurrency", "8")),
            "1 processes": Setup(_celery("--pool", "prefork", "--concurrency", "2")),
            "2": Setup(_celery("--pool", "solo"), instances=2),
        },
        {"one by one": ("one", _CONFIRM), "bulk, unconfirmed": ("bulk", {})},
    ),
    Contender(
        "dramatiq",
        "dramatiq_peer.py",
        ("dramatiq[rabbitmq]==2.2.1",),
        {
            "1": Setup(_dramatiq(1, 1), env={"dramatiq_queue_prefetch": "250"}),
            "1 threads": Setup(_dramatiq(1, 8), env={"dramatiq_queue_prefetch": "250"}),
            "2": Setup(_dramatiq(2, 1), env={"dramatiq_queue_prefetch": "250"}),
        },
        {"one by one": ("one", _CONFIRM), "bulk, unconfirmed": ("bulk", {})},
        kinds=("classic",),
    ),
    Contender(
        "taskiq",
        "taskiq_peer.py",
        ("taskiq==0.13.0", "taskiq-aio-pika==0.6.0", "uvloop"),
        {"1": Setup(_taskiq(1)), "1 threads": Setup(_taskiq(1), fill="sync"), "2": Setup(_taskiq(2))},
        {"one by one": ("one", {}), "100 concurrent": ("concurrent", {})},
    ),
    Contender(
        "faststream",
        "faststream_peer.py",
        ("faststream[rabbit]==0.7.8", "uvloop"),
        {"1": Setup(_faststream), "2": Setup(_faststream, instances=2)},
        {"one by one": ("one", {}), "100 concurrent": ("concurrent", {})},
        delays=False,
    ),
)
