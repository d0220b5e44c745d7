"""Capture of log lines of runs that are kept; only with `--capture-logs`."""

from taskmq.worker.run_logs.lines import LoggedRun, RunLines
from taskmq.worker.run_logs.sink import KeptRuns

__all__ = ["KeptRuns", "LoggedRun", "RunLines"]
