"""Jobs that wait behind gates, in a `JobModel`."""

from collections.abc import Mapping
from typing import Final

from taskmq.contracts.jobs import Lane, partition_key
from taskmq.testing.job_store.model import JobModel
from taskmq.testing.job_store.values import lane_of

__all__ = ["open_gates", "put_behind"]

_MOST: Final = 500


def put_behind(model: JobModel, partition: int, epoch: int, gates: Mapping[str, str]) -> None:
    """What `DispatchStore.put_behind` does."""
    if model.leases.has(partition_key(partition), epoch):
        there = {job.id for lane in model.lanes(partition) for job in model.ready(lane)}
        model.gates |= {job: gate for job, gate in gates.items() if job in there}


def open_gates(
    model: JobModel, partition: int, epoch: int, gates: Mapping[str, int] | None = None
) -> list[tuple[str, Lane]]:
    """What `DispatchStore.open_gates` does."""
    if not model.leases.has(partition_key(partition), epoch):
        return []
    behind = [model.jobs[job] for job in model.gates if model.partition_of(model.jobs[job].queue) == partition]
    behind.sort(key=lambda job: (model.gates[job.id], -job.priority, job.due, job.id))
    left = dict.fromkeys(model.gates.values(), _MOST) if gates is None else dict(gates)
    opened: list[tuple[str, Lane]] = []
    for job in behind:
        gate = model.gates[job.id]
        if left.get(gate, 0) > 0 and (gates is not None or len(opened) < _MOST):
            left[gate] -= 1
            del model.gates[job.id]
            opened.append((gate, lane_of(job)))
    return opened
