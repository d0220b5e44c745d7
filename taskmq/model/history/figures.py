"""Figures that are computed from rollups, by name. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.history.rollups import MINUTE, Rollup, sum_rollups
from taskmq.model.units import did_you_mean

_PARTS: Final = ("task", "queue", "tenant")
_MOST_POINTS: Final = 1_500
_MOST_VALUES: Final = 100_000


class Series(msgspec.Struct, frozen=True):
    """A line of a plot.

    Attributes:
        labels: the task, queue or tenant that it belongs to.
        points: instants (start of each step, ms since the epoch) and values; None for steps without a value.
    """

    labels: dict[str, str]
    points: list[tuple[int, float | None]]


def _count(*names: str) -> Callable[[Rollup, int], float | None]:
    return lambda rollup, _: float(sum(rollup.outcomes.get(name, 0) for name in names))


def _wait_quantile(share: float) -> Callable[[Rollup, int], float | None]:
    return lambda rollup, _: rollup.waited.quantile(share)


def _run_quantile(share: float) -> Callable[[Rollup, int], float | None]:
    return lambda rollup, _: rollup.ran.quantile(share)


FIGURES: Final[Mapping[str, tuple[str, Callable[[Rollup, int], float | None]]]] = {
    "started": ("started runs", _count("started")),
    "succeeded": ("succeeded jobs", _count("succeeded", "answered")),
    "failed": ("failed jobs", lambda rollup, _: float(rollup.failed)),
    "retried": ("attempts that are retried", _count("retried")),
    "cancelled": ("cancelled jobs", _count("cancelled")),
    "interrupted": ("interrupted runs, whose jobs were requeued", _count("interrupted")),
    "ended": ("ended jobs, with any outcome", lambda rollup, _: float(rollup.ended)),
    "throughput": ("ended jobs a second", lambda rollup, step: rollup.ended * 1000 / step),
    "failure_rate": ("failed share of the ended jobs, 0 to 1", lambda rollup, _: rollup.failure_rate),
    "wait_mean": ("mean seconds from the due time to the first start", lambda rollup, _: rollup.waited.mean),
    "wait_p50": ("median of these seconds", _wait_quantile(0.5)),
    "wait_p95": ("95th percentile of these seconds", _wait_quantile(0.95)),
    "wait_p99": ("99th percentile of these seconds", _wait_quantile(0.99)),
    "run_mean": ("mean seconds of a run", lambda rollup, _: rollup.ran.mean),
    "run_p50": ("median of these seconds", _run_quantile(0.5)),
    "run_p95": ("95th percentile of these seconds", _run_quantile(0.95)),
    "run_p99": ("99th percentile of these seconds", _run_quantile(0.99)),
}
"""Figures by name: a description, and a function of a rollup and its length in ms."""


def figure_of(name: str, rollup: Rollup, step: int) -> float | None:
    """Return a figure of a rollup that is `step` ms long; None if it is undefined because nothing happened.

    Raises:
        InvalidOption: no figure has this name.
    """
    check_names([name])
    return FIGURES[name][1](rollup, step)


def check_step(since: int, until: int, step: int) -> int:
    """Return the step if it is whole minutes and yields a readable number of points.

    Raises:
        InvalidOption: the time is empty, or the step is invalid.
    """
    if since >= until:
        raise InvalidOption("since: must be before until")
    if step % MINUTE or step < MINUTE:
        raise InvalidOption("step: must be whole minutes, at least one")
    if (until - since) // step > _MOST_POINTS:
        raise InvalidOption(
            f"step: {(until - since) // step} points are too many, at most {_MOST_POINTS}: choose a longer step"
        )
    return step


def check_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of figures without duplicates.

    Raises:
        InvalidOption: no figure has one of the names.
    """
    found = tuple(dict.fromkeys(names))
    if unknown := [name for name in found if name not in FIGURES]:
        raise InvalidOption(f"unknown metric {unknown[0][:60]!r}: {did_you_mean(unknown[0], list(FIGURES))}")
    return found


def check_parts(by: Iterable[str]) -> tuple[str, ...]:
    """Return the labels to group by (task, queue, tenant) without duplicates.

    Raises:
        InvalidOption: a label is unknown.
    """
    found = tuple(dict.fromkeys(by))
    if unknown := [part for part in found if part not in _PARTS]:
        raise InvalidOption(f"by: unknown label {unknown[0][:60]!r}: {did_you_mean(unknown[0], list(_PARTS))}")
    return found


def check_size(rollups: Iterable[Rollup], by: tuple[str, ...], *, each: int) -> None:
    """Check that a response with `each` values of every group is small enough.

    Raises:
        InvalidOption: there are too many values.
    """
    many = len({tuple(getattr(one.key, part) for part in by) for one in rollups}) * each
    if many > _MOST_VALUES:
        raise InvalidOption(
            f"by: {many} values are too many, at most {_MOST_VALUES}: use fewer labels or metrics, or a longer step"
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
    """Compute figures over time, by name.

    Args:
        by: which of task, queue and tenant to group by.

    Raises:
        InvalidOption: a figure or label is unknown, or there are too many values.
    """
    names, by = check_names(names), check_parts(by)
    instants = range(since // step * step, until, step)
    check_size(rollups, by, each=len(names) * len(instants))
    found: dict[tuple[str, ...], dict[int, Rollup]] = {}
    for key, rollup in sum_rollups(rollups, step=step, by=by).items():
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
