"""Prometheus for taskmq, by prometheus-client: `pip install 'taskmq[prometheus]'`.

Work, schedules and calls are counted in different processes:

- The **worker** serves its metrics at `/metrics` of its health port (`taskmq worker --health-port 9464`). Worker
  processes report to the supervisor, which runs no task; it adds the numbers up and serves one page for all
  processes. Counters never fall when a process is replaced, and nothing is written to disk. prometheus-client's
  multiprocess mode is not used. Only the port needs configuration.
- A **beat** serves its own metrics in the same way (`taskmq beat --health-port 9465`). - So do a **scheduler**
(`taskmq scheduler --health-port 9466`) and a **server** (`taskmq server --health-port 9467`). - **Senders** are your
own processes with their own pages. `SendMetrics` is a middleware that counts calls and measures
  the time to the broker's confirm, in a registry of your choice.

Labels are the task, the queue's logical name, and the state, so there are as many series as the app has tasks. If
there are very many, the worker exports the 1,000 busiest and adds up the rest as the task `other`. Work of a killed
process in its last second is not counted.
"""

from taskmq_prometheus.exporter import ProcessCollector, open_exporter
from taskmq_prometheus.send_metrics import SendMetrics

__all__ = ["ProcessCollector", "SendMetrics", "open_exporter"]
