"""Steps of random histories that take and open claims, compared with the model."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchedJob, DispatchStore, JobClaim
from taskmq.model.keys import line_key
from taskmq.testing.job_store.model import JobModel
from taskmq.testing.job_store_suite.driver import HOUR

_LINES: Final = tuple(line_key("mail", key, tenant=None) for key in ("north", "south"))
_PLACES: Final = (JobClaim("places:one"), JobClaim("places:two", places=2))
_KEYS: Final = tuple(JobClaim(f"once:{key}", ttl=9 * HOUR) for key in "ab")


class ClaimSteps:
    """Claims of the jobs of one history; which ones a job needs follows from its id, as from its message."""

    def __init__(self, model: JobModel) -> None:
        self._model = model
        self._fences: defaultdict[str, int] = defaultdict(int)

    def line_of(self, job_id: str) -> str | None:
        """Return the line of the job with that id; None for most."""
        number = _number_of(job_id)
        return _LINES[number % 2] if number % 3 == 0 else None

    def gate_of(self, job_id: str) -> str:
        """Return the line or the key of the job with that id; "k" for a job with neither."""
        return self.line_of(job_id) or next((key.name for key in _keys_of(job_id)), "k")

    async def take(
        self, schedulers: DispatchStore, jobs: Sequence[DispatchedJob], *, partition: int, epoch: int, of_model: int
    ) -> set[str]:
        """Take the claims of the jobs on both."""
        claiming = [replace(job, claims=self._claims_of(job)) for job in jobs]
        taken = await schedulers.take_claims(partition, epoch, claiming)
        expected = self._model.take_claims(partition, of_model, claiming)
        assert (taken is None) is (expected is None), f"{taken} instead of {expected}"
        if taken is not None and expected is not None:
            assert taken.fences.keys() == expected.fences.keys(), f"{taken} instead of {expected}"
            assert (taken.waiting, taken.done) == (expected.waiting, expected.done), f"{taken} instead of {expected}"
            for job in claiming:
                self._check_fence(job, taken.fences.get(job.id), has_key=bool(expected.fences.get(job.id)))
        return {job.id for job in jobs}

    async def open(self, schedulers: DispatchStore) -> set[str]:
        """Open all claims with free places on both; return the jobs that waited."""
        waited = {job for job, gate in self._model.gates.items() if ":" in gate}
        places = {claim.name: claim.places for claim in (*_PLACES, *_KEYS)} | dict.fromkeys(_LINES, 1)
        opened = await schedulers.open_claims(places)
        expected = self._model.open_claims(places)
        assert opened == expected, f"{opened} instead of {expected}"
        return waited

    def _claims_of(self, job: DispatchedJob) -> tuple[JobClaim, ...]:
        number = _number_of(job.id)
        line = self.line_of(job.id)
        lines = () if line is None else (JobClaim(line),)
        return (*lines, *_keys_of(job.id), *_PLACES[: number % 3])

    def _check_fence(self, job: DispatchedJob, fence: int | None, *, has_key: bool) -> None:
        if fence is None:
            return
        assert (fence > 0) is has_key
        for claim in job.claims:
            if claim.ttl is not None:
                assert fence > self._fences[claim.name]
                self._fences[claim.name] = fence


def _keys_of(job_id: str) -> tuple[JobClaim, ...]:
    number = _number_of(job_id) % 4
    return _KEYS[number : number + 1]


def _number_of(job_id: str) -> int:
    return int(job_id[-4:], 16)
