"""The state of one partition: synchronous, without a clock or I/O.

state           the whole state, and its changes when a job starts or leaves
ledger          jobs in flight, and batches
placements      amounts of nodes that jobs in flight use
refused_queues  queues whose messages the broker refuses
rules           the app's rules about tasks and queues
"""

from taskmq.scheduler.partition.ledger import Flight, Ledger
from taskmq.scheduler.partition.placements import Placements, Reservation
from taskmq.scheduler.partition.rules import AppRules
from taskmq.scheduler.partition.state import PartitionState

__all__ = ["AppRules", "Flight", "Ledger", "PartitionState", "Placements", "Reservation"]
