"""List of contenders, with the commands that start their workers."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.contender import SHARED_WORK, WORK, Contender, Setup

_CONFIRM: Final = {"BENCH_CONFIRM": "1"}
# The library's default settings; the other setups are tuned for the work.
_DEFAULTS: Final = {"BENCH_DEFAULTS": "1"}
# Per thread; with a larger prefetch the first worker would take the whole queue.
_FEW_EACH: Final = {"BENCH_PREFETCH_MULTIPLIER": "4"}
_FLOOR: Final = frozenset({"drain", "enqueue"})


def _celery(*pool: str) -> Callable[[Path], list[str]]:
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    # Two nodes with the same name would talk to each other.
    return lambda bin_: [
        *(str(bin_ / "celery"), "-A", "celery_peer", "worker", "--hostname", f"bench-{secrets.token_hex(4)}@%h"),
        *quiet,
        *pool,
    ]


def _celery_defaults(bin_: Path) -> list[str]:
    return [str(bin_ / "celery"), "-A", "celery_peer", "worker", "--loglevel", "ERROR"]


def _dramatiq(processes: int, threads: int) -> Callable[[Path], list[str]]:
    counts = ["--processes", str(processes), "--threads", str(threads)]
    return lambda bin_: [str(bin_ / "dramatiq"), "dramatiq_peer", *counts, "--skip-logging"]


def _dramatiq_defaults(bin_: Path) -> list[str]:
    return [str(bin_ / "dramatiq"), "dramatiq_peer", "--skip-logging"]


def _taskiq(workers: int) -> Callable[[Path], list[str]]:
    options = ["--workers", str(workers), "--max-async-tasks", "100", "--ack-type", "when_executed"]
    quiet = ["--no-configure-logging", "--log-level", "ERROR"]
    return lambda bin_: [str(bin_ / "taskiq"), "worker", "taskiq_peer:broker", *options, *quiet]


def _taskiq_defaults(bin_: Path) -> list[str]:
    return [str(bin_ / "taskiq"), "worker", "taskiq_peer:broker", "--no-configure-logging", "--log-level", "ERROR"]


def _faststream(bin_: Path) -> list[str]:
    return [str(bin_ / "python"), "-c", "import asyncio, faststream_peer; asyncio.run(faststream_peer.app.run())"]


def _consumer(script: str) -> Callable[[Path], list[str]]:
    return lambda bin_: [str(bin_ / "python"), script, "consume"]


def _arq(bin_: Path) -> list[str]:
    return [str(bin_ / "arq"), "arq_peer.WorkerSettings", "--custom-log-dict", "arq_peer.QUIET"]


def _streaq(bin_: Path) -> list[str]:
    return [str(bin_ / "streaq"), "run", "streaq_peer:worker"]


def _taskmq(processes: int, concurrency: int = 100) -> Callable[[Path], list[str]]:
    counts = ["--processes", str(processes), "--concurrency", str(concurrency)]
    return lambda bin_: [str(bin_ / "taskmq"), "-q", "worker", "taskmq_peer:app", *counts]


def _taskmq_defaults(bin_: Path) -> list[str]:
    return [str(bin_ / "taskmq"), "-q", "worker", "taskmq_peer:app"]


_PREFETCH: Final = {"dramatiq_queue_prefetch": "250"}

CONTENDERS: Final = (
    Contender(
        "taskmq",
        "taskmq_peer.py",
        (),
        {
            "1": Setup(_taskmq(1)),
            "1 threads": Setup(_taskmq(1, 8), fill="sync"),
            "1 processes": Setup(_taskmq(1, 2), fill="process", env={"BENCH_POOL": "1"}),
            "2": Setup(_taskmq(2)),
            "defaults": Setup(_taskmq_defaults),
        },
        {"one by one": ("one", {}), "100 concurrent": ("concurrent", {}), "bulk": ("bulk", {})},
        sleeping={"1": Setup(_taskmq(1)), "2": Setup(_taskmq(2))},
        # Workflows need a store: `benchmarks.job_store` measures them.
        work=frozenset(WORK) - {"fan"},
        share=8.0,
    ),
    Contender(
        "celery",
        "celery_peer.py",
        ("celery[redis]==5.7.0",),
        {
            "1": Setup(_celery("--pool", "solo")),
            "1 threads": Setup(_celery("--pool", "threads", "--concurrency", "8")),
            "1 processes": Setup(_celery("--pool", "prefork", "--concurrency", "2")),
            "2": Setup(_celery("--pool", "solo"), instances=2),
            "defaults": Setup(_celery_defaults, env=_DEFAULTS),
        },
        {"one by one": ("one", _CONFIRM), "bulk, unconfirmed": ("bulk", {})},
        sleeping={
            "1": Setup(_celery("--pool", "threads", "--concurrency", "100"), env=_FEW_EACH),
            "2": Setup(_celery("--pool", "threads", "--concurrency", "100"), instances=2, env=_FEW_EACH),
        },
        delaying="1 threads",
    ),
    Contender(
        "dramatiq",
        "dramatiq_peer.py",
        ("dramatiq[rabbitmq,redis]==2.2.1",),
        {
            "1": Setup(_dramatiq(1, 1), env=_PREFETCH),
            "1 threads": Setup(_dramatiq(1, 8), env=_PREFETCH),
            "2": Setup(_dramatiq(2, 1), env=_PREFETCH),
            "defaults": Setup(_dramatiq_defaults),
        },
        {"one by one": ("one", _CONFIRM), "bulk, unconfirmed": ("bulk", {})},
        sleeping={
            "1": Setup(_dramatiq(1, 100), env=_PREFETCH),
            "2": Setup(_dramatiq(2, 100), env=_PREFETCH),
        },
        kinds=("classic",),
    ),
    Contender(
        "taskiq",
        "taskiq_peer.py",
        ("taskiq==0.13.0", "taskiq-aio-pika==0.6.0", "uvloop"),
        {
            "1": Setup(_taskiq(1)),
            "1 threads": Setup(_taskiq(1), fill="sync"),
            "2": Setup(_taskiq(2)),
            "defaults": Setup(_taskiq_defaults, env=_DEFAULTS),
        },
        {"one by one": ("one", {}), "100 concurrent": ("concurrent", {})},
        sleeping={"1": Setup(_taskiq(1)), "2": Setup(_taskiq(2))},
        work=SHARED_WORK - {"fan"},
    ),
    Contender(
        "faststream",
        "faststream_peer.py",
        ("faststream[rabbit]==0.7.8", "uvloop"),
        {"1": Setup(_faststream), "2": Setup(_faststream, instances=2)},
        {"one by one": ("one", {}), "100 concurrent": ("concurrent", {})},
        work=frozenset({"drain", "enqueue", "start", "memory"}),
    ),
    Contender(
        "arq",
        "arq_peer.py",
        ("arq==0.28.0",),
        {"1": Setup(_arq), "2": Setup(_arq, instances=2), "defaults": Setup(_arq, env=_DEFAULTS)},
        {"one by one": ("one", {}), "100 concurrent": ("concurrent", {})},
        kinds=("redis",),
        work=frozenset({"drain", "enqueue", "latency", "start"}),
        share=0.5,
    ),
    Contender(
        "streaq",
        "streaq_peer.py",
        ("streaq==7.2.0",),
        {"1": Setup(_streaq), "2": Setup(_streaq, instances=2), "defaults": Setup(_streaq, env=_DEFAULTS)},
        {"one by one": ("one", {}), "100 concurrent": ("concurrent", {}), "bulk": ("bulk", {})},
        kinds=("redis",),
        work=frozenset({"drain", "enqueue", "latency", "start", "fan"}),
        share=0.5,
    ),
    Contender(
        "pika",
        "pika_peer.py",
        ("pika==1.4.4",),
        {"1": Setup(_consumer("pika_peer.py"))},
        {"one by one": ("one", {}), "bulk, 1,000 unconfirmed": ("bulk", {})},
        work=_FLOOR,
        share=2.0,
    ),
    Contender(
        "aio-pika",
        "aio_pika_peer.py",
        ("aio-pika==10.2.1", "uvloop"),
        {"1": Setup(_consumer("aio_pika_peer.py"))},
        {"one by one": ("one", {}), "100 concurrent": ("concurrent", {})},
        work=_FLOOR,
        share=2.0,
    ),
)
