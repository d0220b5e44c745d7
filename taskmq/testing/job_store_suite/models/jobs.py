"""Random histories on a store, compared with the reference `taskmq.testing.JobModel`."""

import random

from taskmq.testing.job_store import JobModel
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.models.history import JobHistory
from taskmq.testing.runner import case


class JobsByModel(JobStoreCase):
    """Guarantees for any sequence of steps.

    Attributes:
        steps: number of steps in one history, on a database that starts empty.
        seed: seed of the history.
    """

    steps: int = 250
    seed: int = 0

    @case
    async def test_random_histories_match_the_model(self) -> None:
        drivers = [self.driver() for _ in range(3)]
        model = JobModel(partitions=drivers[0].schedulers.partitions)
        model.report_keys = await drivers[0].schedulers.report_keys()
        history = JobHistory(random.Random(self.seed), drivers[0], drivers, model)

        for step in range(self.steps):
            await history.step(f"seed {self.seed}, step {step}")
