"""Host nodes and their resources over HTTP.

`hosts` has `/api/v1/nodes` and the calls of document 000 for nodes; `resources` those for allocations, which also
others use that share the nodes.
"""

from taskmq.server.nodes.hosts import HOST_HANDLERS
from taskmq.server.nodes.resources import RESOURCE_HANDLERS

__all__ = ["NODE_HANDLERS"]

NODE_HANDLERS = (*HOST_HANDLERS, *RESOURCE_HANDLERS)
