"""Conversion of rows to records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from taskmq.contracts.jobs import AttemptRecord, DispatchedJob, HistoryEntry, JobAction, JobRecord
from taskmq.errors import StoreUnavailable
from taskmq.model.envelope import submitted_at
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES, EVENT_KINDS, STATES
from taskmq_sql.jobs.values import decode_detail, owner_in
from taskmq_sql.postgres.connections import Connections, Row
from taskmq_sql.postgres.names import Kind, Names

_BODIES: Final = "select id, body from taskmq.job_body where id = any($1::uuid[])"
_FAILED: Final = CODES[JobState.FAILED]
_NOWHERE: Final[Mapping[str, str]] = {}


async def job_records(rows: Sequence[Row], names: Names) -> list[JobRecord]:
    """Convert rows of `job` or `job_history`, which may have `finished`, `body`, `detail` and so on."""
    text = await _texts(rows, names, ("tenant", "queue", "task", "worker"))
    return [_job_record(row, text) for row in rows]


async def dispatched_jobs(
    rows: Sequence[Row], connections: Connections, names: Names, nodes: Mapping[str, str] = _NOWHERE
) -> list[DispatchedJob]:
    """Read the jobs that a committed transaction dispatched.

    Args:
        nodes: of placed jobs, by job id.

    Raises:
        StoreUnavailable: reading them failed; never certain, since the dispatch is committed.
    """
    try:
        return await _dispatched_jobs(rows, await _large_bodies(rows, connections), names, nodes)
    except StoreUnavailable as error:
        raise StoreUnavailable(f"jobs were dispatched, but reading them failed: {error}", is_certain=False) from error


async def _large_bodies(rows: Sequence[Row], connections: Connections) -> dict[Any, bytes]:
    """Read the bodies that are not in the rows; no change reaches them while their jobs are under way."""
    wanted = [row["id"] for row in rows if row["body"] is None]
    if not wanted:
        return {}
    found = await connections.run("read", lambda connection: connection.fetch(_BODIES, wanted))
    return {row["id"]: row["body"] for row in found}


async def _dispatched_jobs(
    rows: Sequence[Row], bodies: dict[Any, bytes], names: Names, nodes: Mapping[str, str]
) -> list[DispatchedJob]:
    text = await _texts(rows, names, ("tenant", "queue", "task"))
    tenants, queues, tasks = text["tenant"], text["queue"], text["task"]
    return [
        DispatchedJob(
            id=str(row["id"]),
            key=row["key"],
            tenant=tenants[row["tenant"]],
            task=tasks[row["task"]],
            queue=queues[row["queue"]],
            priority=row["priority"],
            attempt=row["attempt"],
            token=row["token"],
            expires=row["expires"],
            body=bodies[row["id"]] if row["body"] is None else row["body"],
            node=nodes.get(str(row["id"]), ""),
            due=row["due"] if row["first_started"] is None else None,
            outages=row["outages"] or 0,
            owner=owner_in(row["detail"]),
            crashes=row["crashes"],
        )
        for row in rows
    ]


async def attempt_records(rows: Sequence[Row], names: Names) -> list[AttemptRecord]:
    text = await _texts(rows, names, ("worker",))
    return [
        AttemptRecord(
            attempt=row["attempt"],
            started=row["started"],
            ended=row["ended"],
            worker=text["worker"][row["worker"]],
            error=error_of(row),
            state=STATES[row["state"] or _FAILED],
            processor_ms=row["processor_ms"],
            peak_memory=row["peak_memory"],
        )
        for row in rows
    ]


def history_entries(rows: Iterable[Row]) -> list[HistoryEntry]:
    return [
        HistoryEntry(
            version=row["version"],
            at=row["at"],
            kind=EVENT_KINDS[row["kind"]],  # pyright: ignore[reportArgumentType] - the column has no other values
            state=STATES[row["state"]],
            by=row["actor"],
            note=row["note"],
            started=row["started"],
        )
        for row in rows
    ]


async def job_actions(rows: Sequence[Row], names: Names) -> list[JobAction]:
    text = await _texts(rows, names, ("tenant", "task", "queue"))
    return [
        JobAction(
            job_id=str(row["id"]),
            key=row["key"],
            tenant=text["tenant"][row["tenant"]],
            task=text["task"][row["task"]],
            queue=text["queue"][row["queue"]],
            entry=entry,
        )
        for row, entry in zip(rows, history_entries(rows), strict=True)
    ]


def error_of(row: Row) -> ErrorRecord | None:
    """Return the error of a job or an attempt."""
    if row["error_type"] is None:
        return None
    return ErrorRecord(
        type_name=row["error_type"], message=row["error_message"] or "", traceback=row["traceback"] or ""
    )


def error_columns(error: ErrorRecord | None) -> tuple[str | None, str | None, str | None]:
    """Return the three columns of an error, which is escaped already."""
    return (None, None, None) if error is None else (error.type_name, error.message, error.traceback)


def _job_record(row: Row, text: dict[Kind, dict[int | None, str]]) -> JobRecord:
    job_id = str(row["id"])
    return JobRecord(
        id=job_id,
        tenant=text["tenant"][row["tenant"]],
        key=row["key"],
        task=text["task"][row["task"]],
        queue=text["queue"][row["queue"]],
        priority=row["priority"],
        state=STATES[row["state"]],
        version=row["version"],
        attempt=row["attempt"],
        token=row["token"],
        due=row["due"],
        scheduled=row["scheduled"],
        submitted=submitted_at(job_id),
        expires=row["expires"],
        dispatched=row["dispatched"],
        started=row["started"],
        finished=row.get("finished"),
        first_started=row["first_started"],
        worker=text["worker"][row["worker"]],
        cancel_requested=row["cancel_requested"],
        body=row.get("body") or b"",
        content_type=row.get("content_type") or "",
        result=row.get("result") or b"",
        error=error_of(row),
        detail=decode_detail(row.get("detail")),
        retried_as=str(row.get("retried_as") or ""),
        processor_ms=row.get("processor_ms"),
        peak_memory=row.get("peak_memory"),
    )


async def _texts(rows: Sequence[Row], names: Names, kinds: Sequence[Kind]) -> dict[Kind, dict[int | None, str]]:
    return {kind: await names.texts(kind, {row[kind] for row in rows}) for kind in kinds}
