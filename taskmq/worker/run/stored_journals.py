"""Journals of stored jobs: what their runs report and save goes to the job store, through the scheduler.

    progress    -> a report, before that of the run's end
    begin, save -> a report -> the scheduler's answer, on a topic of this worker -> the run continues

Announcements may be lost, so a request without an answer is repeated. It has one effect however often it arrives.
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from taskmq.client.large_values import LargeValues
from taskmq.contracts.broker import Broker
from taskmq.contracts.broker_abilities import Broadcasting, Listening
from taskmq.contracts.stores import BegunRun
from taskmq.errors import (
    BrokerUnavailable,
    MalformedMessage,
    SavedValuesFull,
    StateUnavailable,
    TooLarge,
    TopologyMismatch,
    UnsupportedFeature,
)
from taskmq.model.clock import Clock
from taskmq.model.envelope import JSON, Invitation
from taskmq.model.history.journals import LARGEST_SAVED, NO_DETAILS, RunProgress, SaveRequest, decode_answers
from taskmq.model.history.signals import MOST_SAVED, count_signals
from taskmq.model.history.suspensions import ARGUMENTS
from taskmq.model.jobs.reports import Report, ReportKind
from taskmq.model.states import JobState
from taskmq.model.values.light_values import read_reference, reference_to
from taskmq.run.journal import RunJournal, describe_saved
from taskmq.worker.settlement.reports import ReportSender

_AGAIN: Final = 2.0
# Longer than a partition takes to pass to another scheduler.
_PATIENCE: Final = 60.0
# Seconds: a day longer than stores keep an ended job.
_KEPT: Final = 31 * 86_400.0
_REMEDY: Final = "set results_at= of the app, which keeps large values elsewhere, or save references"


class _SavingRun(msgspec.Struct):
    """A run that saves values.

    Attributes:
        name: a text that no other run has.
        number: of its last request.
        sizes: bytes of the values that travel in messages, by name.
        names: names of all values.
    """

    name: str
    number: int
    sizes: dict[str, int]
    names: set[str]


class StoredJournals:
    """Requests of one worker's runs to the job store.

    Args:
        worker: its name.
        large: keeps large values; None: there is no such store.
    """

    def __init__(
        self, broker: Broker, reports: ReportSender, *, worker: str, clock: Clock, large: LargeValues | None
    ) -> None:
        self._broker = broker
        self._reports = reports
        self._worker = worker
        self._clock = clock
        self._large = large
        self._topic = f"worker.saved.{secrets.token_hex(16)}"
        self._runs: dict[RunJournal, _SavingRun] = {}
        self._asked: dict[tuple[str, int], asyncio.Future[int]] = {}
        self._connecting: asyncio.Task[Listening] | None = None

    def report_progress(self, journal: RunJournal, invitation: Invitation, state: JobState) -> None:
        """Report the journal's news; the report of the run's end follows it."""
        progress = RunProgress(
            done=journal.done,
            total=journal.total,
            note=journal.note,
            updated=self._clock.now_ms(),
            state=state,
            details=NO_DETAILS if journal.details is None else msgspec.Raw(journal.details),
        )
        self._reports.add(invitation, self._report(journal, invitation, "progress", progress=progress))

    async def begin(self, journal: RunJournal, invitation: Invitation) -> BegunRun | None:
        """See `CheckpointStore.begin`; the invitation has the values."""
        values = {name: bytes(value) for name, value in (invitation.saved or {}).items()}
        sizes = {name: len(name) + len(value) for name, value in values.items()}
        run = _SavingRun(secrets.token_hex(8), 0, sizes, {*values, *(invitation.kept or {})})
        fence = await self._request(journal, invitation, run, base=invitation.saves - count_signals(run.names))
        if not fence:
            return None
        self._runs[journal] = run
        return BegunRun(fence, values | await self._fetch(journal, invitation.kept or {}))

    async def save(self, journal: RunJournal, invitation: Invitation, name: str, value: bytes, *, fence: int) -> bool:
        """Save a value; return False if another run has begun.

        Raises:
            SavedValuesFull: the job has as many values as it may.
            TooLarge: it does not fit into messages, together with the other values of the job.
            StateUnavailable: no scheduler answered, or the value could not be kept elsewhere.
        """
        run = self._runs[journal]
        if name == ARGUMENTS:
            # It replaces the other values, and the scheduler has to read it.
            return bool(await self._request(journal, invitation, run, fence=fence, name=name, value=value))
        if name not in run.names and len(run.names) >= MOST_SAVED:
            raise SavedValuesFull(journal.job_id, describe_saved(name))
        run.names.add(name)
        size = sum(each for other, each in run.sizes.items() if other != name) + len(name) + len(value)
        if size <= LARGEST_SAVED and not (self._large is not None and self._large.is_large(value)):
            run.sizes[name] = len(name) + len(value)
            return bool(await self._request(journal, invitation, run, fence=fence, name=name, value=value))
        if self._large is None:
            what = f"with the values saved before, {describe_saved(name)} of job {journal.job_id}"
            raise TooLarge(size, LARGEST_SAVED, what, remedy=_REMEDY)
        blob = await self._large.keep(journal.job_id, value, ttl=_KEPT)
        run.sizes.pop(name, None)
        reference = reference_to(JSON, blob)
        return bool(
            await self._request(journal, invitation, run, fence=fence, name=name, value=reference, is_reference=True)
        )

    def forget(self, journal: RunJournal) -> None:
        """Forget a run that has ended."""
        self._runs.pop(journal, None)

    async def aclose(self) -> None:
        """Stop listening to answers."""
        connecting = self._connecting
        if connecting is not None and not connecting.cancel() and connecting.exception() is None:
            await connecting.result().stop()

    async def _fetch(self, journal: RunJournal, kept: Mapping[str, msgspec.Raw]) -> dict[str, bytes]:
        """Read the values that are kept elsewhere.

        Raises:
            StateUnavailable: they cannot be read here.
        """
        values: dict[str, bytes] = {}
        for name, reference in kept.items():
            found = read_reference(bytes(reference))
            if self._large is None or found is None:
                raise StateUnavailable(
                    f"job {journal.job_id}: {describe_saved(name)} is kept elsewhere: set results_at= as the worker "
                    "had it that saved the value"
                )
            values[name] = await self._large.fetch(journal.job_id, found[1])
        return values

    async def _request(
        self,
        journal: RunJournal,
        invitation: Invitation,
        run: _SavingRun,
        *,
        base: int = 0,
        fence: int = 0,
        name: str = "",
        value: bytes = b"null",
        is_reference: bool = False,
    ) -> int:
        """Report the request until it is answered; return the fence, or 0 if it is refused.

        Raises:
            StateUnavailable: there was no answer.
        """
        run.number += 1
        request = SaveRequest(
            reply=self._topic,
            number=run.number,
            run=run.name,
            base=base,
            fence=fence,
            name=name,
            value=msgspec.Raw(value),
            is_reference=is_reference,
        )
        report = self._report(journal, invitation, "saving", saving=request)
        key = (run.name, run.number)
        answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked[key] = answered
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._listen()
                while not answered.done():
                    if not await self._reports.send(invitation, report):
                        raise StateUnavailable(f"job {journal.job_id}: the worker stops", is_certain=False)
                    await asyncio.wait((answered,), timeout=_AGAIN)
            return answered.result()
        except TimeoutError:
            raise StateUnavailable(
                f"job {journal.job_id}: no scheduler confirmed within {_PATIENCE:g} s that the store saved "
                f"{describe_saved(name) if name else 'the start of the run'}",
                is_certain=False,
            ) from None
        finally:
            del self._asked[key]

    async def _listen(self) -> None:
        """Listen to answers, once for all runs.

        Raises:
            StateUnavailable: the broker does not let this worker listen.
            UnsupportedFeature: the broker cannot broadcast.
        """
        if not isinstance(self._broker, Broadcasting):
            raise UnsupportedFeature("saving values of stored jobs needs a broker that broadcasts")
        if self._connecting is None or (self._connecting.done() and self._connecting.exception() is not None):
            self._connecting = asyncio.create_task(self._broker.listen([self._topic], self._receive))
        try:
            await asyncio.shield(self._connecting)
        except (BrokerUnavailable, TopologyMismatch) as error:
            raise StateUnavailable(f"the answers of schedulers cannot be received: {error}") from error

    def _receive(self, topic: str, body: bytes) -> None:
        del topic
        try:
            answers = decode_answers(body)
        except MalformedMessage:
            # Anyone may announce; the request is repeated.
            return
        for answer in answers:
            answered = self._asked.get((answer.run, answer.number))
            if answered is not None and not answered.done():
                answered.set_result(answer.fence)

    def _report(
        self,
        journal: RunJournal,
        invitation: Invitation,
        kind: ReportKind,
        *,
        progress: RunProgress | None = None,
        saving: SaveRequest | None = None,
    ) -> Report:
        return Report(
            id=invitation.id,
            token=invitation.token,
            proof=invitation.proof,
            kind=kind,
            attempt=journal.attempt,
            worker=self._worker,
            started=journal.started,
            progress=progress,
            saving=saving,
        )
