"""Capture of log lines of stored jobs' runs; only with `--capture-logs`."""

from taskmq.worker.run_logs.lines import RunLines
from taskmq.worker.run_logs.sink import StoredRuns

__all__ = ["RunLines", "StoredRuns"]
