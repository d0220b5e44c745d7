"""Host nodes, as a scheduler deals with them.

registrar   workers report their nodes -> the store; silent ones are lost
placer      jobs of queues with `placed=True` -> nodes that have what they need
"""

from taskmq.scheduler.nodes.placer import Placer
from taskmq.scheduler.nodes.registrar import NodeRegistrar

__all__ = ["NodeRegistrar", "Placer"]
