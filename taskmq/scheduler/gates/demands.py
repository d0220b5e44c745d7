"""Demands of stored jobs on the limits of their tasks, as far as known without running the task's code."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from taskmq.contracts.stores import Demand, RateDemand
from taskmq.errors import MalformedMessage
from taskmq.model.envelope import decode_envelope
from taskmq.options.limits import Limit
from taskmq.tasks.task import Task

_NOTHING: Final[Sequence[Demand]] = ()
_args: Final = msgspec.json.Decoder(tuple[Any, ...])
_kwargs: Final = msgspec.json.Decoder(dict[str, Any])


class TaskDemands:
    """The demands of one app's tasks.

    A limit applies here if all its calls share it, its key was computed at the submission, or the key consists of
    parameters of type `str` and `int`.

    Args:
        is_final: whether no state decides after the scheduler. Otherwise strict rates are left to the workers. If it
            is final, all calls whose keys are unknown share one limit.
        only: kind of limits that count here; default: all.
    """

    def __init__(
        self, tasks: Iterable[Task[..., Any]], *, is_final: bool = False, only: type[Limit] | None = None
    ) -> None:
        self._is_final = is_final
        kind = only or Limit
        found = [(task, [each for each in task.limits if isinstance(each.limit, kind)]) for task in tasks]
        self._limits = {task.name: limits for task, limits in found if limits}
        self.queues = frozenset(task.queue for task, limits in found if limits)
        """Queues of the tasks with limits."""

    def of(self, task: str, body: bytes) -> Sequence[Demand]:
        """Return the demands of a job with this body; with an empty body, those of all jobs of the task."""
        limits = self._limits.get(task)
        if limits is None:
            return _NOTHING
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        tenant: str | None = None
        keys: dict[str, str] = {}
        has_arguments = False
        if body:
            try:
                envelope = decode_envelope(body)
                args, kwargs = _args.decode(envelope.args), _kwargs.decode(envelope.kwargs)
            except (MalformedMessage, msgspec.MsgspecError):
                return _NOTHING
            # Arguments stored elsewhere are not available here.
            tenant, keys, has_arguments = envelope.tenant, envelope.limits or {}, not envelope.has_references
        found: list[Demand] = []
        for limit in limits:
            if limit.id in keys:
                demand: Demand | None = limit.keyed_demand(keys[limit.id], tenant=tenant)
            elif has_arguments or not limit.takes_key:
                demand = limit.plain_demand(args, kwargs, tenant=tenant)
            else:
                demand = None
            # Databases do not accept text with NUL.
            if demand is not None and "\0" in demand.key:
                demand = None
            if demand is None and self._is_final and body:
                demand = limit.whole
            if demand is not None and self._counts(demand):
                found.append(demand)
        return found

    def rates(self, task: str, body: bytes) -> tuple[RateDemand, ...]:
        """Return the rates among the demands of a job."""
        return tuple(demand for demand in self.of(task, body) if isinstance(demand, RateDemand))

    def _counts(self, demand: Demand) -> bool:
        return self._is_final or not (isinstance(demand, RateDemand) and demand.strict)
