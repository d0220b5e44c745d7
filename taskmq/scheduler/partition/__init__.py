"""The state of one partition: synchronous, without a clock and without I/O.

state           everything, and what changes when a job begins or leaves
ledger          jobs in flight, and batches
placements      amounts of nodes that jobs in flight have
refused_queues  queues to which the broker takes nothing
rules           the app's rules about tasks and queues
"""

from taskmq.scheduler.partition.ledger import Flight, Ledger, public_name
from taskmq.scheduler.partition.placements import Placements, Reservation
from taskmq.scheduler.partition.rules import AppRules
from taskmq.scheduler.partition.state import PartitionState

__all__ = ["AppRules", "Flight", "Ledger", "PartitionState", "Placements", "Reservation", "public_name"]
