"""What a contender is: a library, how its worker is started, and which work its model has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["PEERS", "SHARED_WORK", "WORK", "Contender", "Setup"]

PEERS: Final = Path(__file__).parent / "peers"

# In this order a round goes through it.
WORK: Final = ("drain", "enqueue", "latency", "backlog", "delayed", "start", "fan", "scaling", "memory", "embedded")
# What needs no broker is ours alone.
SHARED_WORK: Final = frozenset(WORK) - {"embedded"}


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
        setups: for `drain`, by the name in the table; "1" is one process at its best sensible setting.
        modes: of enqueueing, by the name in the table: the producer's mode and its environment.
        sleeping: for tasks that wait, by the number of processes: 100 at a time in each.
        delaying: the setup that keeps delayed tasks best.
        kinds: of queues that it can use; `redis` is a server of its own.
        work: what its model has.
        share: of the usual number of tasks: more for the quick, less for the slow, so that each runs for seconds.
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
