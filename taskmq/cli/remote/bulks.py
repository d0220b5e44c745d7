"""`taskmq bulk` through a server."""

from itertools import islice
from typing import Any

from taskmq.api.jobs import BulkOperationView
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.jobs.bulk import BULK_COLUMNS, check_filter, code_of, no_bulk
from taskmq.cli.output import confirm, note, print_record
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import instant_of
from taskmq.errors import RequestRefused
from taskmq.http import Client
from taskmq.model.jobs.bulks import BulkAction
from taskmq.model.jobs.changes import RetryMode

__all__ = ["abort", "begin", "list_bulks", "show"]

_NOT_FOUND = 404


def begin(
    client: Client,
    *,
    action: BulkAction,
    where: str,
    everything: bool,
    at: str | None,
    delay: str | None,
    priority: int | None,
    mode: RetryMode | None,
    again: bool,
    rate: float | None,
    because: str,
    dry_run: bool,
    wait: bool,
    yes: bool,
) -> int:
    check_filter(where, everything=everything)
    count = client.jobs.act(action, where, everything=everything, again=again, dry_run=True).matched
    if dry_run:
        print_record({"matched": count})
        return OK
    if not confirm(f"{action} {count} jobs?", yes=yes):
        return FAILED
    moment = None if at is None else instant_of("--at", at)
    bulk = client.bulks.begin(
        action,
        where,
        everything=everything,
        at=moment,
        delay=delay,
        priority=priority,
        mode=mode,
        again=again,
        rate=rate,
        note=because,
    )
    if wait:
        bulk = client.bulks.wait(bulk.bulk_id)
    _print(bulk)
    return code_of(bulk.state, bulk.refused)


def list_bulks(client: Client, *, limit: int) -> int:
    show_rows(BULK_COLUMNS, [*islice(client.bulks.list(page_size=max(min(limit, 200), 1)), max(limit, 0))], _row)
    return OK


def show(client: Client, *, bulk: str) -> int:
    try:
        _print(client.bulks.get(bulk))
    except RequestRefused as error:
        return _missing(bulk, error)
    return OK


def abort(client: Client, *, bulk: str) -> int:
    try:
        _print(client.bulks.abort(bulk))
    except RequestRefused as error:
        return _missing(bulk, error)
    return OK


def _missing(bulk: str, error: RequestRefused) -> int:
    if error.status != _NOT_FOUND:
        raise error
    return no_bulk(bulk)


def _print(bulk: BulkOperationView) -> None:
    def record() -> dict[str, Any]:
        return {**_row(bulk), "rate": bulk.rate, "note": bulk.note, "ended": text_of_instant(bulk.ended)}

    show_record(bulk, record)
    if current_globals().output == "table":
        for one in bulk.refusals:
            note(f"job {one.job_id}: {one.detail}")
        for each in bulk.repeated:
            note(f"job {each.job_id} runs again as {each.retried_as}")


def _row(bulk: BulkOperationView) -> dict[str, Any]:
    return {
        "bulk": bulk.bulk_id,
        "action": bulk.action,
        "filter": bulk.filter,
        "state": bulk.state,
        "matched": bulk.matched,
        "done": bulk.done,
        "refused": bulk.refused,
        "began": text_of_instant(bulk.began),
        "by": bulk.by,
    }
