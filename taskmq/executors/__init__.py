"""The three ways to run a task's function.

- `CoroutineExecutor`: on the worker's loop. Giving up cancels the coroutine.
- `ThreadExecutor`: in a thread. A thread cannot be stopped: giving up abandons it, sets `Context.cancelled`, and
  starts a fresh thread for its slot, so that stuck functions do not use up the slots.
- `ProcessExecutor`: in a separate process, started fresh (spawn) and fed with the message's own bytes, because
  decoded arguments need not be picklable. Giving up kills the process. A process that dies takes only the one task
  with it that it was running.

Before a run is given up, `SoftTimeout` is raised inside if the task has a `soft_timeout` (`interrupt`). A run's share
of the worker's memory is enforced in processes (`memory`).
"""

from taskmq.executors.coroutine import CoroutineExecutor
from taskmq.executors.process import ProcessExecutor
from taskmq.executors.thread import ThreadExecutor

__all__ = ["CoroutineExecutor", "ProcessExecutor", "ThreadExecutor"]
