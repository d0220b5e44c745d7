"""Prometheus for taskmq, by prometheus-client: `pip install 'taskmq[prometheus]'`.

Work, schedules and calls are counted in different processes:

- The **worker** shows its numbers at `/metrics` of its health port (`taskmq worker --health-port 9464`). The worker
  processes send the supervisor what they have done, and the supervisor, which runs no task, adds it up and shows it:
  one page for all processes, counters that never go down when a process is replaced, no files on disk.
  prometheus-client's own multiprocess mode is not used. Nothing has to be configured but the port.
- A **beat** shows its own in the same way (`taskmq beat --health-port 9465`).
- A **scheduler** as well (`taskmq scheduler --health-port 9466`), and a **server** (`taskmq server --health-port
  9467`).
- The **senders** are your own processes, with a page of their own. `SendMetrics` is a middleware that counts calls
  and measures the time to the broker's confirm, in a registry of your choice.

Labels are the task, the queue as people name it, and the state: as many series as the app has tasks. Should there be
very many, the worker shows the 1,000 busiest and adds up the rest as the task `other`. What a killed process has done
in its last second is not counted.
"""

from taskmq_prometheus.exporter import ProcessCollector, open_exporter
from taskmq_prometheus.send_metrics import SendMetrics

__all__ = ["ProcessCollector", "SendMetrics", "open_exporter"]
