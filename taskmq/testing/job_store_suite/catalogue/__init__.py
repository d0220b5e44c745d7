"""What jobs are made from: definitions, and what is known of tasks. Of stores that are `Catalogued`."""

from taskmq.testing.job_store_suite.catalogue.definitions import Definitions
from taskmq.testing.job_store_suite.catalogue.tasks import RegisteredTasks

__all__ = ["Definitions", "RegisteredTasks"]
