"""What the store learns of tasks: by this scheduler of its own app, and by workers over the broker."""

from taskmq.scheduler.catalogue.registrar import TaskRegistrar

__all__ = ["TaskRegistrar"]
