"""Registration of tasks in the store: those of this scheduler's app, and those that workers report."""

from taskmq.scheduler.catalogue.registrar import TaskRegistrar

__all__ = ["TaskRegistrar"]
