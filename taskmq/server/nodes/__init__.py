"""Host nodes and their resources over HTTP.

`hosts` serves `/api/v1/nodes` and the API's original paths for nodes. `resources` serves allocations, also for other
systems that share the nodes.
"""

from taskmq.server.nodes.hosts import HOST_HANDLERS
from taskmq.server.nodes.resources import RESOURCE_HANDLERS

__all__ = ["NODE_HANDLERS"]

NODE_HANDLERS = (*HOST_HANDLERS, *RESOURCE_HANDLERS)
