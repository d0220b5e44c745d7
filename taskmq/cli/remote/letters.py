"""`taskmq dlq` through a server."""

from typing import Any

from taskmq.api.dead_letters import LetterView, ReplayBody
from taskmq.cli.exits import FAILED, NOT_FOUND, OK
from taskmq.cli.globals import current_globals, only_here
from taskmq.cli.operators.dlq import GROUP_COLUMNS
from taskmq.cli.operators.letters import COLUMNS, Filters, parse_rate
from taskmq.cli.output import confirm, note, print_rows
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.http import Client

__all__ = ["groups", "list_letters", "purge", "replay", "show"]

_MOST = 10_000


def list_letters(client: Client, *, queue: str | None, limit: int, filters: Filters) -> int:
    _check(filters, "reason", "older_than", "newer_than", "depth")
    client = _for(client, filters.tenant)
    found: list[tuple[str, LetterView]] = []
    for name in [queue] if queue else client.dead_letters.queues():
        if left := limit - len(found):
            letters = client.dead_letters.list(
                name,
                task=filters.task,
                error=filters.error,
                fingerprint=filters.fingerprint,
                job=filters.job,
                limit=left,
            )
            found += [(name, letter) for letter in letters]
    if queue or current_globals().output != "table":
        show_rows(COLUMNS, [letter for _, letter in found], _row)
    else:
        print_rows(("queue", *COLUMNS), [{"queue": name, **_row(letter)} for name, letter in found])
    return OK


def groups(client: Client, *, queue: str | None, filters: Filters) -> int:
    _check(filters, "task", "error", "reason", "fingerprint", "job", "older_than", "newer_than", "depth")
    client = _for(client, filters.tenant)
    found = [
        (name, group)
        for name in ([queue] if queue else client.dead_letters.queues())
        for group in client.dead_letters.groups(name)
    ]
    found.sort(key=lambda entry: -entry[1].count)
    names = {id(group): name for name, group in found}
    show_rows(
        [column for column in GROUP_COLUMNS if column != "queue" or not queue],
        [group for _, group in found],
        lambda group: {
            "count": group.count,
            "jobs": group.jobs,
            "queue": names[id(group)],
            "tenants": ", ".join(group.tenants),
            "first": text_of_instant(group.first),
            "last": text_of_instant(group.last),
            "task": group.task,
            "reason": group.reason,
            "error": group.error_type or group.reason,
            "message": group.error,
            "sample": group.sample,
            "fingerprint": group.fingerprint,
        },
    )
    return OK


def show(client: Client, *, queue: str, job: str, tenant: str | None, depth: int | None) -> int:
    only_here(depth=depth)
    letters = _for(client, tenant).dead_letters.list(queue, job=job, limit=1)
    if not letters:
        note(f"no dead letter of job {job} in {queue!r}")
        return NOT_FOUND
    (found,) = letters
    show_record(
        found,
        lambda: {
            **_row(found),
            "error_type": found.error_type,
            "fingerprint": found.fingerprint,
            "queue": found.queue,
            "worker": found.worker,
            "enqueued": text_of_instant(found.enqueued),
            "replayed": found.replayed,
            "traceback": found.traceback,
        },
    )
    return OK


def replay(
    client: Client,
    *,
    queue: str,
    limit: int | None,
    to: str | None,
    keep_attempts: bool,
    rate: str | None,
    max_replays: int,
    duplicates: bool,
    force: bool,
    dry_run: bool,
    filters: Filters,
) -> int:
    only_here(max_replays=max_replays != 3, duplicates=duplicates, force=force, dry_run=dry_run, depth=filters.depth)
    done = _for(client, filters.tenant).dead_letters.replay(
        queue,
        ReplayBody(
            task=filters.task,
            error=filters.error,
            reason=filters.reason,
            fingerprint=filters.fingerprint,
            job=filters.job,
            older_than=filters.older_than,
            newer_than=filters.newer_than,
            to=to,
            limit=_MOST if limit is None else limit,
            rate=None if rate is None else parse_rate(rate),
            keep_attempts=keep_attempts,
        ),
    )
    note(f"{done.replayed} replayed")
    if done.dropped:
        note(f"{done.dropped} dropped: further letters of the same jobs")
    if done.too_often:
        note(f"{done.too_often} left: replayed {max_replays} times before")
    if done.no_destination:
        note(f"{done.no_destination} left: they do not say where they came from; name a queue with --to")
    if done.too_often or done.no_destination:
        return FAILED
    return NOT_FOUND if filters.job and not done.replayed else OK


def purge(client: Client, *, queue: str, limit: int | None, yes: bool, dry_run: bool, filters: Filters) -> int:
    only_here(limit=limit, dry_run=dry_run)
    _check(filters, "reason", "older_than", "newer_than", "depth")
    which = "all" if filters == Filters() else "the chosen"
    if not confirm(f"Delete {which} dead letters of {queue!r}?", yes=yes):
        return FAILED
    count = _for(client, filters.tenant).dead_letters.purge(
        queue, task=filters.task, error=filters.error, fingerprint=filters.fingerprint, job=filters.job
    )
    note(f"{count} dead letters deleted")
    return NOT_FOUND if filters.job and not count else OK


def _for(client: Client, tenant: str | None) -> Client:
    """The client for the letters of one tenant; for all that the caller may see where none is named."""
    return client if tenant is None else client.for_tenant(tenant)


def _check(filters: Filters, *names: str) -> None:
    """Refuse conditions that the API's call does not have: without them it would act on further letters."""
    only_here(**{name: getattr(filters, name) for name in names})


def _row(letter: LetterView) -> dict[str, Any]:
    return {
        "job": letter.job_id,
        "tenant": letter.tenant,
        "task": letter.task,
        "attempt": letter.attempt,
        "reason": letter.reason,
        "error": letter.error,
        "died": text_of_instant(letter.died),
    }
