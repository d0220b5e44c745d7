"""Definition of a contender: a library, the ways to start its worker, and the work it supports."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PEERS: Final = Path(__file__).parent / "peers"

# The order within a round.
WORK: Final = ("drain", "enqueue", "latency", "backlog", "delayed", "start", "fan", "scaling", "memory", "embedded")
# Only taskmq runs without a broker.
SHARED_WORK: Final = frozenset(WORK) - {"embedded"}


@dataclass(frozen=True, slots=True)
class Setup:
    """One way to start a worker.

    Attributes:
        argv: builds the command from the environment's folder of programs.
        instances: number of worker processes to start.
        fill: the producer mode that fills the queue for this setup.
        env: additional environment variables.
    """

    argv: Callable[[Path], list[str]]
    instances: int = 1
    fill: str = "bulk"
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Contender:
    """One library.

    Attributes:
        requires: requirements of its environment; empty: use this checkout's environment.
        setups: setups for `drain`, by table name; "1" is one process with its best sensible settings.
        modes: producer mode and environment of each way to enqueue, by table name.
        sleeping: setups for tasks that sleep, by number of processes; each runs 100 tasks at a time.
        delaying: the setup that handles delayed tasks best.
        kinds: kinds of queue that it supports; `redis` is a separate server.
        work: pieces of work that it supports.
        share: factor for the number of tasks, so that a run takes seconds for fast and slow contenders.
    """

    name: str
    script: str
    requires: tuple[str, ...]
    setups: Mapping[str, Setup]
    modes: Mapping[str, tuple[str, Mapping[str, str]]]
    sleeping: Mapping[str, Setup] = field(default_factory=dict[str, Setup])
    delaying: str = "1"
    kinds: tuple[str, ...] = ("quorum", "classic")
    work: frozenset[str] = SHARED_WORK
    share: float = 1.0
