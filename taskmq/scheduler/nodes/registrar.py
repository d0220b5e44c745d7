"""Registration of nodes and workers in the store, as workers report them, and detection of lost nodes.

    worker.beat, every 10 s, by broadcast -> received -> once a second: written to the store
    once a second, one scheduler in turns -> expire: a node that missed three heartbeats is lost

No node is declared lost until a scheduler has listened for that long.

Anyone with write access to the broker can report nodes. Reports are therefore validated, and limited to 10,000.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.jobs import JobStore
from taskmq.contracts.stores import Lease
from taskmq.durable.lease_terms import acquire_in_term
from taskmq.durable.service import pause
from taskmq.errors import InvalidOption, StateUnavailable, StoreUnavailable
from taskmq.model.nodes import NodeTold, checked_node
from taskmq.model.telemetry.events import WorkerEvent

_log = logging.getLogger("taskmq.scheduler")

_LEASE: Final = "nodes"
_TURN: Final = 30.0
_SECOND: Final = 1.0
_MOST: Final = 10_000
_LONGEST_NAME: Final = 255
# A store keeps process ids of this many bits.
_PID_BITS: Final = 63


class NodeRegistrar:
    """A service that keeps the store's lists of nodes and workers up to date.

    Args:
        me: name of this scheduler.
        knows_all: returns whether every live node must have been heard by now.
    """

    def __init__(self, store: JobStore, *, me: str, knows_all: Callable[[], bool]) -> None:
        self._store = store
        self._knows_all = knows_all
        self._me = me
        self._heard: dict[str, NodeTold] = {}
        # The last event of each worker process. Two workers may have the same name.
        self._events: dict[tuple[str, str, int], WorkerEvent] = {}
        self._complaints: set[str] = set()
        self._turns_left = 0
        self._is_stopping = asyncio.Event()
        self._has_trouble = False

    def receive(self, event: WorkerEvent) -> None:
        """Queue a worker's status and its report of its node.

        A status that no store can keep is ignored. Invalid reports of nodes are logged.
        """
        status = event.status
        worker = (status.name, status.host, status.pid)
        can_be_kept = max(map(len, worker[:2])) <= _LONGEST_NAME and status.pid.bit_length() <= _PID_BITS
        if can_be_kept and (worker in self._events or len(self._events) < _MOST):
            self._events[worker] = event
        if status.node is not None and event.event != "offline":
            self._receive_node(status.node)

    def _receive_node(self, report: NodeTold) -> None:
        try:
            if len(self._heard) < _MOST:
                self._heard[report.name] = checked_node(report)
        except InvalidOption as error:
            if len(self._complaints) < _MOST and report.name not in self._complaints:
                self._complaints.add(report.name)
                _log.warning("ignoring a worker's report of its node: %s", error)

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Write reports and expire nodes once a second until `stop`. Waits while the store is unavailable."""
        while not await pause(self._is_stopping, _SECOND):
            try:
                await self._write()
                await self._expire()
                self._has_trouble = False
            except (StateUnavailable, StoreUnavailable) as error:
                self._turns_left = 0
                if not self._has_trouble:
                    _log.warning("updating the list of nodes failed, will retry: %s", error)
                self._has_trouble = True

    async def _write(self) -> None:
        heard = dict(self._heard)
        if heard:
            await self._store.nodes.report(list(heard.values()))
            # Keep reports that arrived meanwhile.
            self._heard = {name: report for name, report in self._heard.items() if heard.get(name) is not report}
        events = dict(self._events)
        # The list of hosts needs no jobs, of which a worker may have thousands.
        alive = [replace(one.status, jobs=[], in_hand={}) for one in events.values() if one.event != "offline"]
        await self._store.nodes.report_workers(alive)
        await self._store.nodes.forget_workers([one.status for one in events.values() if one.event == "offline"])
        self._events = {worker: event for worker, event in self._events.items() if events.get(worker) is not event}

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
            _log.warning("node %s is lost: it missed three heartbeats; its jobs will run elsewhere", name)
