"""Host nodes and allocations, on PostgreSQL and SQLite alike.

Calls are generators of statements, as those of `taskmq_sql.identity`. A transaction that allocates writes to the rows
of the nodes first, in the order of their names: so of two at a time one waits, and sees what the other one took.

An allocation of a job is open while the job's row is under way with the token that it names. Nothing ends it when
the job does: it does not count any more from that very transaction on, and `expire` writes down later when it ended.
"""

from taskmq_sql.nodes.allocations import reserve, take
from taskmq_sql.nodes.store import JobsAtHand, SqlNodes

__all__ = ["JobsAtHand", "SqlNodes", "reserve", "take"]
