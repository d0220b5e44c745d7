"""Import of schedules and delayed jobs from the state (beats, `delay="state"`) into the job store.

Each schedule and job is first written to the store under the same name or id, and then removed from the state.
Anything already in the store is not written again. The import may therefore be interrupted at any point and repeated:
nothing is lost or duplicated. Stop all beats, and all workers that delay jobs in the state, before the import.
"""

import os
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobScheduleStore, JobStore, NewJob, ScheduleChange, StoredSchedule
from taskmq.contracts.stores import State, TakenMessage, WaitingMessage, state_required
from taskmq.errors import (
    EncodeError,
    InvalidOption,
    JobConflict,
    MalformedMessage,
    QuotaExceeded,
    UnsupportedFeature,
)
from taskmq.middleware.chain import Sending, Submission
from taskmq.model.envelope import JSON, MSGPACK, Envelope, decode_envelope, encode_envelope, new_job_id
from taskmq.model.keys import split_tenant_key
from taskmq.model.topology import logical_queue
from taskmq.model.units import LAST_INSTANT
from taskmq.model.values.wire_form import encode_json
from taskmq.operations.retention import Advance
from taskmq.schedules import ScheduleEntry
from taskmq.schedules.definition import read_definition
from taskmq.schedules.kept_records import StateRecords
from taskmq.schedules.record import OccurrenceClaim, ScheduleRecord, encode_record
from taskmq.schedules.store_records import StoredRecords, record_of
from taskmq.stored_jobs.new_jobs import new_job
from taskmq.stored_jobs.submission.submissions import require_accepted

_PAGE: Final = 200
_LEASE: Final = 30.0
_NONE: Final = (b"[]", b"{}")
_STORE_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")

ImportedKind = Literal["schedule", "job"]
ImportOutcome = Literal["moves", "exists", "stays"]


class Imported(msgspec.Struct, frozen=True):
    """Outcome of the import of one schedule or job.

    Attributes:
        outcome: `moves`; `exists` if an earlier import or a scheduler has already stored it; or `stays`.
        note: why it stays, or a remark.
    """

    what: ImportedKind
    name: str
    outcome: ImportOutcome
    note: str = ""


async def import_state(app: TaskMQ, *, dry_run: bool, on_progress: Advance | None = None) -> list[Imported]:
    """Move schedules (definition, pause, last instant) and delayed jobs from the state to the job store.

    Args:
        dry_run: only report the outcomes.
        on_progress: called with the number of items read; the total is unknown.

    Raises:
        UnsupportedFeature: the app lacks a state or a store, or a beat is running.
        StateUnavailable, StoreUnavailable: only part was moved; import again.
    """
    session = app.sessions.current()
    state = session.state
    if state is None:
        raise state_required("an import needs")
    store = app.sessions.store()
    schedules = _ScheduleImport(app, state, store)
    jobs = _JobImport(app, state, store)
    found: list[Imported] = []
    for part in (schedules, jobs):
        async for each in part.run(dry_run=dry_run):
            found.append(each)
            if on_progress is not None:
                on_progress(len(found), None)
    return found


class _ScheduleImport:
    """Importer of schedules, both those in the code and those created at run time."""

    def __init__(self, app: TaskMQ, state: State, store: JobStore) -> None:
        self._app = app
        self._kept = StateRecords(state.schedules, app.name, app.sessions.clock)
        self._records = StoredRecords(store, app.name, app.producer)
        self._store: JobScheduleStore = store.schedules

    async def run(self, *, dry_run: bool) -> AsyncIterator[Imported]:
        definitions = await self._kept.definitions()
        entries: list[ScheduleEntry] = list(self._app.schedules.values())
        for name, definition in definitions.items():
            if name in self._app.schedules:
                continue
            try:
                entries.append(read_definition(definition, name=name, tasks=self._app.tasks))
            except InvalidOption as error:
                yield Imported("schedule", name, "stays", str(error))
        for start in range(0, len(entries), _PAGE):
            page = entries[start : start + _PAGE]
            records = await self._kept.read(page)
            self._refuse_beats(page, records)
            rows = await self._store.find(self._app.name, [entry.name for entry in page])
            for entry, record, row in zip(page, records, rows, strict=True):
                yield await self._move(entry, record, row, definitions.get(entry.name), dry_run=dry_run)

    async def _move(
        self,
        entry: ScheduleEntry,
        record: ScheduleRecord,
        row: StoredSchedule | None,
        definition: bytes | None,
        *,
        dry_run: bool,
    ) -> Imported:
        if row is not None and record_of(row) != ScheduleRecord():
            found = Imported("schedule", entry.name, "exists")
        elif record == ScheduleRecord() and definition is None:
            return Imported("schedule", entry.name, "stays", "no beat has run it; a scheduler starts it anew")
        else:
            try:
                written = self._records.encode(entry)
            except (InvalidOption, EncodeError) as error:
                return Imported("schedule", entry.name, "stays", str(error))
            lost = f"{len(record.active)} of its unfinished jobs do not count for overlap" if record.active else ""
            found = Imported("schedule", entry.name, "moves", lost)
            if not dry_run:
                change = ScheduleChange(
                    app=self._app.name,
                    name=entry.name,
                    before=row,
                    is_code=not entry.is_dynamic,
                    definition=written,
                    record=encode_record(_convert_record(record)),
                    next=await self._records.now(),
                )
                if not (await self._store.write([change]))[0]:
                    return Imported("schedule", entry.name, "stays", "a scheduler has just stored it: import again")
        if definition is not None and not dry_run:
            # Removed last, so that an interrupted import can be repeated.
            await self._kept.define(entry.name, before=definition, after=None)
        return found

    def _refuse_beats(self, entries: Sequence[ScheduleEntry], records: Sequence[ScheduleRecord]) -> None:
        now = self._app.sessions.clock.now_ms()
        for entry, record in zip(entries, records, strict=True):
            if any(claim.until > now for claim in record.claims):
                raise UnsupportedFeature(
                    f"schedule {entry.name!r}: a beat runs it, or was killed less than ten seconds ago; stop all "
                    "beats of this app, then import again"
                )


class _JobImport:
    """Importer of delayed jobs."""

    def __init__(self, app: TaskMQ, state: State, store: JobStore) -> None:
        self._app = app
        self._delays = state.delays
        self._store = store

    async def run(self, *, dry_run: bool) -> AsyncIterator[Imported]:
        if dry_run:
            for message in await self._delays.list(limit=await self._delays.count()):
                yield self._read(message)[1]
            return
        staying: dict[str, TakenMessage] = {}
        while taken := await self._delays.take(now=LAST_INSTANT, limit=_PAGE, lease=_LEASE):
            moving: list[tuple[TakenMessage, NewJob]] = []
            for each in taken:
                known = staying.get(each.message.job_id)
                if known is not None and known.token == each.token:
                    # Leased again, because the first lease has expired.
                    continue
                job, found = self._read(each.message)
                if job is None:
                    staying[each.message.job_id] = each
                    yield found
                else:
                    moving.append((each, job))
            refusals = await self._submit([job for _, job in moving])
            # Removed last, so that an interrupted import can be repeated; the store recognizes their ids.
            await self._delays.mark_done([each for each, job in moving if job.id not in refusals])
            for each, job in moving:
                if (why := refusals.get(job.id)) is None:
                    yield Imported("job", each.message.job_id, "moves")
                else:
                    staying[each.message.job_id] = each
                    yield Imported("job", each.message.job_id, "stays", why)
        await self._delays.give_back(list(staying.values()))
        if left := await self._delays.count() - len(staying):
            yield Imported(
                "job",
                f"{left} others",
                "stays",
                "workers hold them: stop the workers, and import again in half a minute",
            )

    async def _submit(self, jobs: Sequence[NewJob]) -> dict[str, str]:
        """Submit the jobs. Returns why the store refused some, by their ids."""
        refusals: dict[str, str] = {}
        for job, answer in zip(jobs, await self._store.submit(jobs) if jobs else [], strict=True):
            try:
                require_accepted(job, answer)
            except (JobConflict, QuotaExceeded) as error:
                refusals[job.id] = str(error)
        return refusals

    def _read(self, message: WaitingMessage) -> tuple[NewJob | None, Imported]:
        try:
            return self._job(message), Imported("job", message.job_id, "moves")
        except (InvalidOption, UnsupportedFeature, EncodeError, MalformedMessage, msgspec.MsgspecError) as error:
            return None, Imported("job", message.job_id, "stays", str(error))

    def _job(self, message: WaitingMessage) -> NewJob:
        envelope = decode_envelope(message.body, message.content_type)
        if message.content_type == MSGPACK:
            envelope = replace(envelope, args=_as_json(envelope.args), kwargs=_as_json(envelope.kwargs))
        # Encoded again, so that it is JSON from here on.
        envelope = decode_envelope(encode_envelope(replace(envelope, eta=message.due)))
        tenant, key = split_tenant_key(envelope.id)
        if (envelope.tenant or "") != tenant:
            # Its sender chose an id without the tenant's prefix.
            envelope = replace(envelope, tenant=tenant or envelope.tenant)
        queue = self._app.producer.queue(logical_queue(message.queue))
        sending = Sending(envelope, queue.name, JSON, submission=Submission(job_id=key))
        now = self._app.sessions.clock.now_ms()
        return replace(new_job(sending, queue, now=now), id=_choose_id(envelope, now), due=message.due)


def _convert_record(record: ScheduleRecord) -> ScheduleRecord:
    """Convert the record for the store: claims expire at once, and active jobs are dropped."""
    claims = [OccurrenceClaim(each.instant, each.run, each.owner, 0, each.kind) for each in record.claims]
    return replace(record, claims=claims, active=[])


def _as_json(raw: msgspec.Raw) -> msgspec.Raw:
    if bytes(raw) in _NONE:
        # Left out of messages, so equal in both encodings.
        return raw
    value: Any = msgspec.msgpack.decode(raw)
    return msgspec.Raw(encode_json(value))


def _choose_id(envelope: Envelope, now: int) -> str:
    """Return the job's id if it has the store's format, else a new one."""
    return envelope.id if _STORE_ID.fullmatch(envelope.id) else new_job_id(now, os.urandom(10))
