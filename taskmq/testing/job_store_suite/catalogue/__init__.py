"""Tests of definitions and registered tasks, for stores that are `Catalogued`."""

from taskmq.testing.job_store_suite.catalogue.definitions import Definitions
from taskmq.testing.job_store_suite.catalogue.tasks import RegisteredTasks

__all__ = ["Definitions", "RegisteredTasks"]
