"""A private Redis Cluster."""

from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Final, Self

from tests.servers.ports import PortLease
from tests.servers.redis import Redis
from tests.servers.waiting import eventually

_SLOTS: Final = 16_384
_PRIMARIES: Final = 3
SHARE: Final = _SLOTS // _PRIMARIES + 1
"""The slots of a primary: the first one has those below it."""
_PATIENCE: Final = timedelta(seconds=30)


class RedisCluster:
    """Three primaries that share the slots; a node that is silent for a second counts as failed.

    Args:
        replicas: each primary has a replica that can replace it.

    Attributes:
        nodes: the primaries, then their replicas in the same order.
    """

    def __init__(self, *, replicas: bool = False) -> None:
        self._size = 2 * _PRIMARIES if replicas else _PRIMARIES
        self._resources = ExitStack()
        self.nodes: list[Redis] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            buses = stack.enter_context(PortLease(self._size)).ports
            for bus in buses:
                options = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "1000")
                self.nodes.append(stack.enter_context(Redis(options=options)))
            for number, (node, bus) in enumerate(zip(self.nodes, buses, strict=True)):
                if number < _PRIMARIES:
                    first, last = number * SHARE, min((number + 1) * SHARE, _SLOTS) - 1
                    node.command("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
                    node.command("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
                self.nodes[0].command("CLUSTER", "MEET", "127.0.0.1", str(node.port), str(bus))
            for node in self.nodes:
                eventually(partial(self._is_complete, node), "the cluster being whole", within=_PATIENCE)
            for primary, replica in zip(self.nodes, self.nodes[_PRIMARIES:], strict=False):
                replica.command("CLUSTER", "REPLICATE", str(primary.command("CLUSTER", "MYID")))
                eventually(partial(_follows, replica), "a replica following its primary", within=_PATIENCE)
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    @property
    def url(self) -> str:
        """Return all nodes, so that a missing one excludes no client."""
        return f"redis://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}/0"

    def owner(self, key: str) -> Redis:
        """Return the primary that had the key's slot at the start."""
        return self.nodes[int(str(self.nodes[-1].command("CLUSTER", "KEYSLOT", key))) // SHARE]

    def flush(self) -> None:
        """Delete every key."""
        for node in self.nodes[:_PRIMARIES]:
            node.command("FLUSHALL")

    def _is_complete(self, node: Redis) -> bool:
        facts = str(node.command("CLUSTER", "INFO"))
        return "cluster_state:ok" in facts and f"cluster_known_nodes:{self._size}\r" in facts


def _follows(replica: Redis) -> bool:
    return "master_link_status:up" in str(replica.command("INFO", "replication"))
