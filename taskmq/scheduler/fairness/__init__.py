"""Who gets how much: slots among schedulers, and turns among the jobs of a queue. Pure: no clock, no I/O.

- `division`: which slots a scheduler takes, and which it gives back.
- `shares`: whose turn it is: priority classes by guaranteed minimum shares, tenants of a class in equal turns.
- `window`: how many jobs of a queue may be at the broker and with workers at a time.

A caller says what there is and what time it is, and gets values back. Another order of turns (weights, quotas,
deadlines) is another `Shares`: what it is asked for is `picks`, and what it is told is `refresh` and `exhausted`.
"""

from taskmq.scheduler.fairness.division import Division, divide
from taskmq.scheduler.fairness.shares import Shares
from taskmq.scheduler.fairness.window import FLOOR, Window

__all__ = ["FLOOR", "Division", "Shares", "Window", "divide"]
