"""Demands of stored jobs on the limits of their tasks, as far as known without running the task's code."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from taskmq.contracts.stores import Demand, RateDemand
from taskmq.errors import MalformedMessage
from taskmq.model.envelope import decode_envelope
from taskmq.tasks.task import Task

__all__ = ["TaskDemands"]

_NOTHING: Final[Sequence[Demand]] = ()
_args: Final = msgspec.json.Decoder(tuple[Any, ...])
_kwargs: Final = msgspec.json.Decoder(dict[str, Any])


class TaskDemands:
    """The demands of one app's tasks.

    A limit applies here if all its calls share it, its key was computed at the submission, or the key consists of
    parameters of type `str` and `int`. Strict rates are left to the workers, because the start of a run differs from
    its dispatch.
    """

    def __init__(self, tasks: Iterable[Task[..., Any]]) -> None:
        self._tasks = {task.name: task for task in tasks if task.limits}
        self.queues = frozenset(task.queue for task in self._tasks.values())
        """Queues of the tasks with limits."""

    def of(self, task: str, body: bytes) -> Sequence[Demand]:
        """Return the demands of a job with this body; with an empty body, those of all jobs of the task."""
        known = self._tasks.get(task)
        if known is None:
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
            tenant, keys, has_arguments = envelope.tenant, envelope.limits or {}, envelope.blob is None
        found = [
            limit.keyed_demand(keys[limit.id], tenant=tenant)
            if limit.id in keys
            else limit.plain_demand(args, kwargs, tenant=tenant)
            for limit in known.limits
            if has_arguments or limit.id in keys or not limit.takes_key
        ]
        return [demand for demand in found if demand is not None and _is_kept(demand)]


def _is_kept(demand: Demand) -> bool:
    # Databases do not accept text with NUL.
    return not (isinstance(demand, RateDemand) and demand.strict) and "\0" not in demand.key
