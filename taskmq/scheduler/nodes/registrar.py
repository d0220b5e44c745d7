"""Writes down which nodes there are, as workers report them, and which are lost.

    worker.beat, every 10 s, by broadcast -> heard -> once a second: written to the store
    once a second, one scheduler in turns -> expire: who has missed three heartbeats is lost

Where no scheduler has listened for that long, silence says nothing: no node is lost then.

Who may write to the broker can report nodes, too: what they send is judged first, and there are at most 10,000.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from taskmq.contracts.jobs import JobStore
from taskmq.contracts.stores import Lease
from taskmq.durable.lease_terms import acquire_in_term
from taskmq.durable.service import pause
from taskmq.errors import InvalidOption, StateUnavailable, StoreUnavailable
from taskmq.model.nodes import NodeTold, checked_node

__all__ = ["NodeRegistrar"]

_log = logging.getLogger("taskmq.scheduler")

_LEASE: Final = "nodes"
_TURN: Final = 30.0
_SECOND: Final = 1.0
_MOST: Final = 10_000


class NodeRegistrar:
    """Keeps the store's list of nodes: a `Service`.

    Args:
        me: this scheduler.
        knows_all: whether each node that is there would have been heard by now.
    """

    def __init__(self, store: JobStore, *, me: str, knows_all: Callable[[], bool]) -> None:
        self._store = store
        self._knows_all = knows_all
        self._me = me
        self._heard: dict[str, NodeTold] = {}
        self._complaints: set[str] = set()
        self._turns_left = 0
        self._is_stopping = asyncio.Event()
        self._has_trouble = False

    def hear(self, told: NodeTold) -> None:
        """Take what a worker reports of its node; whatever it is, nothing is raised."""
        try:
            if len(self._heard) < _MOST:
                self._heard[told.name] = checked_node(told)
        except InvalidOption as error:
            if len(self._complaints) < _MOST and told.name not in self._complaints:
                self._complaints.add(told.name)
                _log.warning("the report of a worker about its node is not used: %s", error)

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Write and look once a second until `stop`. A store that is not there is waited for."""
        while not await pause(self._is_stopping, _SECOND):
            try:
                await self._tell()
                await self._expire()
                self._has_trouble = False
            except (StateUnavailable, StoreUnavailable) as error:
                self._turns_left = 0
                if not self._has_trouble:
                    _log.warning("the list of nodes is updated later: %s", error)
                self._has_trouble = True

    async def _tell(self) -> None:
        heard = dict(self._heard)
        if heard:
            await self._store.nodes.tell(list(heard.values()))
            # What came meanwhile is news.
            self._heard = {name: told for name, told in self._heard.items() if heard.get(name) is not told}

    async def _expire(self) -> None:
        if not self._knows_all():
            self._turns_left = 0
            return
        if not self._turns_left:
            leases = self._store.dispatching.leases
            token = await acquire_in_term(leases, _LEASE, owner=self._me, seconds=_TURN)
            if isinstance(token, Lease):
                return
            self._turns_left = round(_TURN / _SECOND)
        self._turns_left -= 1
        for name in await self._store.nodes.expire():
            _log.warning("node %s is lost: it has missed three heartbeats; its jobs run elsewhere", name)
