"""Three (or more) RabbitMQ nodes on this machine, joined to one cluster."""

import secrets
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self, cast

from tests.servers.errors import ServerUnavailable
from tests.servers.installation import find_rabbitmq
from tests.servers.node import Membership, start_epmd
from tests.servers.ports import PortLease
from tests.servers.process import Keeper
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.waiting import eventually


class RabbitMQCluster:
    """Nodes that find each other at their first start; each may be killed, paused and restarted alone."""

    def __init__(
        self, nodes: int = 3, version: str | None = "4.3", *, config: Mapping[str, str] | None = None
    ) -> None:
        self._size = nodes
        self._version = version
        self._config = dict(config or {})
        self._keeper: Keeper | None = None
        self._lease: PortLease | None = None
        self.nodes: list[RabbitMQ] = []

    def start(self) -> Self:
        """Start all nodes at once and return when each answers and all are members."""
        if (installation := find_rabbitmq(self._version)) is None:
            raise ServerUnavailable(
                f"a cluster needs RabbitMQ {self._version or ''} on this machine: run "
                f"`python -m tests.servers provision rabbitmq-{self._version}` or `install rabbitmq` as root"
            )
        self._lease = PortLease(1)
        self._keeper = Keeper("epmd")
        start_epmd(self._keeper, installation, self._lease.ports[0])
        names = tuple(f"n{number}@localhost" for number in range(1, self._size + 1))
        membership = Membership(secrets.token_hex(16), self._lease.ports[0], names)
        self.nodes = [
            RabbitMQ(self._version, config=self._config, name=name, membership=membership) for name in names
        ]
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_ready()
        eventually(self.is_complete, "every node being a member", within=timedelta(seconds=60))
        return self

    def is_complete(self) -> bool:
        """Whether the first node sees every node running."""
        members = cast("list[dict[str, object]]", self.nodes[0].http("GET", "/api/nodes"))
        return sum(member["running"] is True for member in members) == self._size

    def close(self) -> None:
        """Kill every node and remove its files; may be called twice."""
        for node in self.nodes:
            node.close()
        if self._keeper is not None:
            self._keeper.close()
        if self._lease is not None:
            self._lease.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
