"""What can be asked of rollups, by name. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.history.rollups import MINUTE, Rollup, summed
from taskmq.model.units import did_you_mean

__all__ = ["FIGURES", "Series", "check_names", "check_parts", "check_size", "check_step", "figure_of", "series_of"]

_PARTS: Final = ("task", "queue", "tenant")
_MOST_POINTS: Final = 1_500
_MOST_VALUES: Final = 100_000


class Series(msgspec.Struct, frozen=True):
    """One line of a plot.

    Attributes:
        labels: which task, queue or tenant it is of.
        points: instants (ms since the epoch, of the beginning of each step) and values; None where there is none.
    """

    labels: dict[str, str]
    points: list[tuple[int, float | None]]


def _count(*names: str) -> Callable[[Rollup, int], float | None]:
    return lambda rollup, _: float(sum(rollup.outcomes.get(name, 0) for name in names))


def _waited(share: float) -> Callable[[Rollup, int], float | None]:
    return lambda rollup, _: rollup.waited.quantile(share)


def _ran(share: float) -> Callable[[Rollup, int], float | None]:
    return lambda rollup, _: rollup.ran.quantile(share)


FIGURES: Final[Mapping[str, tuple[str, Callable[[Rollup, int], float | None]]]] = {
    "started": ("runs that began", _count("started")),
    "succeeded": ("jobs that succeeded", _count("succeeded", "answered")),
    "failed": ("jobs that ended badly", lambda rollup, _: float(rollup.failed)),
    "retried": ("attempts after which another one follows", _count("retried")),
    "cancelled": ("jobs that were cancelled", _count("cancelled")),
    "interrupted": ("runs that were interrupted, and went back", _count("interrupted")),
    "ended": ("jobs that ended, in whichever way", lambda rollup, _: float(rollup.ended)),
    "throughput": ("jobs that ended, a second", lambda rollup, step: rollup.ended * 1000 / step),
    "failure_rate": ("share of the ended that did so badly, 0 to 1", lambda rollup, _: rollup.failure_rate),
    "wait_mean": ("seconds from due to the first start, on average", lambda rollup, _: rollup.waited.mean),
    "wait_p50": ("the same, of half the jobs at most", _waited(0.5)),
    "wait_p95": ("the same, of 95 of 100 at most", _waited(0.95)),
    "wait_p99": ("the same, of 99 of 100 at most", _waited(0.99)),
    "run_mean": ("seconds of a run, on average", lambda rollup, _: rollup.ran.mean),
    "run_p50": ("the same, of half the runs at most", _ran(0.5)),
    "run_p95": ("the same, of 95 of 100 at most", _ran(0.95)),
    "run_p99": ("the same, of 99 of 100 at most", _ran(0.99)),
}
"""Figures by name: what each is, and how it follows from a rollup and its length in ms."""


def figure_of(name: str, rollup: Rollup, step: int) -> float | None:
    """The figure of a rollup that is `step` ms long; None where nothing happened that it could be of.

    Raises:
        InvalidOption: there is no such figure.
    """
    check_names([name])
    return FIGURES[name][1](rollup, step)


def check_step(since: int, until: int, step: int) -> int:
    """The step: whole minutes, and not more points than a reader can see.

    Raises:
        InvalidOption: the time is empty, or the step cannot be.
    """
    if since >= until:
        raise InvalidOption("since: it is not before until")
    if step % MINUTE or step < MINUTE:
        raise InvalidOption("step: whole minutes, from one on")
    if (until - since) // step > _MOST_POINTS:
        raise InvalidOption(
            f"step: {(until - since) // step} points are too many, {_MOST_POINTS} at most: a longer step"
        )
    return step


def check_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names of figures, each once.

    Raises:
        InvalidOption: there is no such figure.
    """
    found = tuple(dict.fromkeys(names))
    if unknown := [name for name in found if name not in FIGURES]:
        raise InvalidOption(f"there is no figure {unknown[0][:60]!r}: {did_you_mean(unknown[0], list(FIGURES))}")
    return found


def check_parts(by: Iterable[str]) -> tuple[str, ...]:
    """Which of task, queue and tenant to group by, each once.

    Raises:
        InvalidOption: there is no such part.
    """
    found = tuple(dict.fromkeys(by))
    if unknown := [part for part in found if part not in _PARTS]:
        raise InvalidOption(f"by: there is no {unknown[0][:60]!r}: {did_you_mean(unknown[0], list(_PARTS))}")
    return found


def check_size(rollups: Iterable[Rollup], by: tuple[str, ...], *, each: int) -> None:
    """Whether an answer with `each` values of every group is small enough.

    Raises:
        InvalidOption: there are too many values.
    """
    many = len({tuple(getattr(one.key, part) for part in by) for one in rollups}) * each
    if many > _MOST_VALUES:
        raise InvalidOption(
            f"by: {many} values are too many, {_MOST_VALUES} at most: fewer parts or figures, or a longer step"
        )


def series_of(
    names: Iterable[str],
    rollups: Collection[Rollup],
    *,
    since: int,
    until: int,
    step: int,
    by: tuple[str, ...] = (),
) -> dict[str, list[Series]]:
    """Figures over time, by name.

    Args:
        by: which of task, queue and tenant to group by.

    Raises:
        InvalidOption: there is no such figure, or no such part, or there are too many values.
    """
    names, by = check_names(names), check_parts(by)
    instants = range(since // step * step, until, step)
    check_size(rollups, by, each=len(names) * len(instants))
    found: dict[tuple[str, ...], dict[int, Rollup]] = {}
    for key, rollup in summed(rollups, step=step, by=by).items():
        found.setdefault(tuple(getattr(key, part) for part in by), {})[key.minute] = rollup
    if not found and not by:
        found[()] = {}
    return {
        name: [
            Series(
                dict(zip(by, parts, strict=True)),
                [(at, figure_of(name, whole[at], step) if at in whole else None) for at in instants],
            )
            for parts, whole in sorted(found.items())
        ]
        for name in names
    }
