"""What runs of jobs of the store log, on its way there; nothing of it happens unless `--capture-logs` asks for it."""

from taskmq.worker.run_logs.lines import RunLines
from taskmq.worker.run_logs.sink import StoredRuns

__all__ = ["RunLines", "StoredRuns"]
