"""Host nodes.

registrar   workers report their nodes -> the store; silent nodes are lost
placer      jobs of queues with `placed=True` -> nodes with the resources they need
"""

from taskmq.scheduler.nodes.placer import Placer
from taskmq.scheduler.nodes.registrar import NodeRegistrar

__all__ = ["NodeRegistrar", "Placer"]
