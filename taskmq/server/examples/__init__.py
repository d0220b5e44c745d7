"""An example for every operation of the API. The tests send those that work unchanged."""

from collections.abc import Mapping
from typing import Final

from taskmq.server.examples.accounts import ACCOUNTS
from taskmq.server.examples.bulks import BULKS
from taskmq.server.examples.definitions import DEFINITIONS
from taskmq.server.examples.example import Example
from taskmq.server.examples.history import HISTORY
from taskmq.server.examples.jobs import JOBS
from taskmq.server.examples.nodes import NODES
from taskmq.server.examples.pools import POOLS
from taskmq.server.examples.queues import QUEUES
from taskmq.server.examples.schedules import SCHEDULES
from taskmq.server.examples.workflows import WORKFLOWS

__all__ = ["EXAMPLES", "Example"]

EXAMPLES: Final[Mapping[str, Example]] = {
    **ACCOUNTS,
    **BULKS,
    **DEFINITIONS,
    **HISTORY,
    **JOBS,
    **NODES,
    **POOLS,
    **QUEUES,
    **SCHEDULES,
    **WORKFLOWS,
}
