"""List of cells, each with a function that runs it once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks import cells
from benchmarks.cell import Cell
from benchmarks.contender import Contender
from benchmarks.floors import floor_consume, floor_publish
from benchmarks.ground import Ground

KINDS: Final = ("quorum", "classic", "redis")
# Tasks per run of a peer, so that a run takes a few seconds; `Contender.share` scales it.
_TASKS: Final = 12_000
# Fewer tasks would finish before the clock starts.
_FEWEST: Final = 600
_FLOOR_SHARE: Final = 16
_AWAITED: Final = 0.15
_RATES: Final = (100, 500, 1000)
_LATENCY_SECONDS: Final = 4.0
_DELAYED: Final = 10_000
_FAN: Final = 10_000
_QUEUED: Final = 1_000_000
_EMBEDDED: Final = 40_000
# Slow work whose figures hardly vary does not run in every round.
_ROUNDS: Final = {"memory": 1, "scaling": 2}
# Work compared on one kind of queue: each contender's first kind; taskmq runs on every kind that a peer uses.
_ONE_KIND: Final = frozenset({"start", "scaling", "memory", "delayed", "backlog", "embedded"})


@dataclass(slots=True)
class Job:
    """A cell and the function that runs it once.

    Attributes:
        rounds: the number of rounds to run it in; None: all.
    """

    cell: Cell
    run: Callable[[], Mapping[str, float]]
    work: str
    rounds: int | None


def plan(
    ground: Ground, contenders: Sequence[Contender], works: Sequence[str], kinds: Sequence[str], *, scale: float
) -> list[Job]:
    """Return the jobs of one round, with contenders of the same work next to each other."""
    jobs: list[Job] = []
    for work in works:
        for kind in kinds:
            jobs += _jobs(ground, contenders, work, kind, scale)
    return jobs


def _jobs(ground: Ground, contenders: Sequence[Contender], work: str, kind: str, scale: float) -> Iterator[Job]:
    rounds = _ROUNDS.get(work)
    for contender in contenders:
        if work in contender.work and kind in contender.kinds and _is_compared(contender, contenders, work, kind):
            for label, note, run in _PLANS[work](ground, contender, kind, scale):
                yield Job(
                    Cell(label, "local" if work == "embedded" else kind, contender.name, note), run, work, rounds
                )
    if kind != "redis":
        for label, note, run in _floor(ground, work, kind, scale):
            yield Job(Cell(label, kind, "C", note), run, work, rounds)


def _is_compared(contender: Contender, contenders: Sequence[Contender], work: str, kind: str) -> bool:
    if work not in _ONE_KIND or contender.kinds[0] == kind:
        return True
    # taskmq is compared with each of them.
    others = [each for each in contenders if each is not contender and work in each.work]
    return not contender.requires and any(each.kinds[0] == kind for each in others)


_Runs = Iterator[tuple[str, str, Callable[[], Mapping[str, float]]]]


def _count(contender: Contender, scale: float, share: float = 1.0) -> int:
    return max(round(_TASKS * contender.share * share * scale), round(_FEWEST * contender.share * share), 100)


def _enqueue(ground: Ground, contender: Contender, kind: str, scale: float) -> _Runs:
    for label, (mode, env) in contender.modes.items():
        work, _, note = label.partition(", ")
        count = _count(contender, scale, _AWAITED / contender.share if work == "one by one" else 1.0)
        run = partial(cells.enqueue, ground, contender, kind=kind, mode=mode, env=env, count=count)
        yield f"enqueue {work}", note, run


def _drain(ground: Ground, contender: Contender, kind: str, scale: float) -> _Runs:
    for label, setup in contender.setups.items():
        count = _count(contender, scale, 1.0 if label in ("1", "2", "defaults") else 0.5)
        yield f"drain, {label}", "", partial(cells.drain, ground, contender, setup, kind=kind, count=count)


def _latency(ground: Ground, contender: Contender, kind: str, scale: float) -> _Runs:
    setup = contender.setups["1"]
    for rate in _RATES:
        seconds = _LATENCY_SECONDS * scale
        run = partial(cells.latency, ground, contender, setup, kind=kind, rate=rate, seconds=seconds)
        yield f"latency at {rate} per second", "", run


def _backlog(ground: Ground, contender: Contender, kind: str, scale: float) -> _Runs:
    # Draining must take longer than the two seconds of sending.
    setup, count = contender.setups["1"], _count(contender, scale, 2.0)
    run = partial(cells.backlog, ground, contender, setup, kind=kind, rate=100, seconds=2 * scale, count=count)
    yield "latency at 100 per second while a backlog drains", "", run


def _delayed(ground: Ground, contender: Contender, kind: str, scale: float) -> _Runs:
    setup, count = contender.setups[contender.delaying], max(round(_DELAYED * scale), 100)
    run = partial(cells.delayed, ground, contender, setup, kind=kind, count=count, delay=5.0)
    yield "delayed 5 s", "" if contender.delaying == "1" else contender.delaying, run


def _scaling(ground: Ground, contender: Contender, kind: str, scale: float) -> _Runs:
    # Short tasks need larger numbers, so that the fastest contender takes a second.
    more = min(contender.share, 3.0)
    for milliseconds, tasks in ((1, 8_000 * more), (10, 8_000 * more), (100, 4_000)):
        for processes, setup in contender.sleeping.items():
            count = max(round(tasks * scale), 600)
            run = partial(cells.scaling, ground, contender, setup, kind=kind, milliseconds=milliseconds, count=count)
            yield f"tasks of {milliseconds} ms, {processes} processes", "", run


def _start(ground: Ground, contender: Contender, kind: str, _scale: float) -> _Runs:
    yield "start", "", partial(cells.start, ground, contender, contender.setups["1"], kind=kind)


def _fan(ground: Ground, contender: Contender, kind: str, scale: float) -> _Runs:
    count = max(round(_FAN * scale), 50)
    run = partial(cells.fan, ground, contender, contender.setups["1"], kind=kind, count=count)
    yield "fan-out and fan-in", "", run


def _memory(ground: Ground, contender: Contender, kind: str, scale: float) -> _Runs:
    setup = contender.setups["1"]
    yield "memory, idle", "", partial(cells.idle_memory, ground, contender, setup, kind=kind)
    queued, count = max(round(_QUEUED * scale), 1000), max(round(5_000 * scale), 500)
    run = partial(cells.queued_memory, ground, contender, setup, kind=kind, queued=queued, count=count)
    yield "memory, many queued", "", run


def _embedded(ground: Ground, contender: Contender, _kind: str, scale: float) -> _Runs:
    for processes in ("1", "2"):
        count = max(round(_EMBEDDED * scale), 1000)
        run = partial(cells.embedded, ground, contender, contender.setups[processes], count=count)
        yield f"embedded, {processes}", "", run


def _floor(ground: Ground, work: str, kind: str, scale: float) -> _Runs:
    count = max(round(_TASKS * _FLOOR_SHARE * scale), 1000)
    if work == "enqueue":
        awaited = max(round(_TASKS * _AWAITED * scale), 200)
        yield "enqueue one by one", "", partial(floor_publish, ground, kind=kind, count=awaited, unconfirmed=1)
        hundred = max(count // 4, 1000)
        run = partial(floor_publish, ground, kind=kind, count=hundred, unconfirmed=100)
        yield "enqueue 100 concurrent", "100 unconfirmed", run
        run = partial(floor_publish, ground, kind=kind, count=count, unconfirmed=1000)
        yield "enqueue bulk", "1,000 unconfirmed", run
    if work == "drain":
        yield "drain, 1", "ack each", partial(floor_consume, ground, kind=kind, count=count)


_PLANS: Final = {
    "enqueue": _enqueue,
    "drain": _drain,
    "latency": _latency,
    "backlog": _backlog,
    "delayed": _delayed,
    "scaling": _scaling,
    "start": _start,
    "fan": _fan,
    "memory": _memory,
    "embedded": _embedded,
}
