"""Supervisor: starts worker processes, replaces those that crash or reach a limit, and stops them."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack
from typing import Final, Literal

import msgspec

from taskmq.contracts.loggers import contain_ours
from taskmq.durable.health import Health, serving
from taskmq.durable.task_set import TaskSet
from taskmq.model.telemetry.metrics import Exporter, Snapshot
from taskmq.supervisor.autoscale import Autoscale
from taskmq.supervisor.child_process import ChildProcess
from taskmq.supervisor.config import SupervisorConfig
from taskmq.supervisor.exit_reason import ExitReason, OutOfMemory
from taskmq.supervisor.fleet_status import FleetStatus
from taskmq.supervisor.orphans import Orphans
from taskmq.supervisor.process_slot import ProcessSlot
from taskmq.supervisor.status import SupervisorStatus
from taskmq.supervisor.systemd import Systemd
from taskmq.worker.child_protocol import EXIT_USAGE, ChildReady, ChildSpec

_log = logging.getLogger("taskmq.worker")

_LOOK: Final = 1.0
_RECYCLE_AGAIN: Final = 30.0


class Supervisor:
    """Keeps worker processes running.

    A process is replaced in order by starting its successor first: the old one drains once the new one consumes. Only
    one process is replaced at a time.

    Signals: the first SIGTERM or SIGINT drains all, the second returns running jobs, the third kills. SIGHUP replaces
    all processes one by one; in a terminal, where it means that the terminal is gone, it drains.

    Args:
        order: spec of each process.
        supervision: number of processes, and limits after which they are replaced.
        on_ready: called once, when the first process consumes.
        on_restart: called whenever all processes were replaced, by `restart` or after a change in the watched code.
    """

    def __init__(
        self,
        order: ChildSpec,
        supervision: SupervisorConfig | None = None,
        *,
        on_ready: Callable[[ChildReady], None] | None = None,
        on_restart: Callable[[], None] = lambda: None,
    ) -> None:
        contain_ours()
        self._order = order
        self._supervision = supervision = supervision or SupervisorConfig()
        self._on_ready = on_ready
        self._on_restart = on_restart
        self._slots: list[ProcessSlot] = []
        self._running: dict[asyncio.Task[Literal["done", "dismissed", "unusable"]], ProcessSlot] = {}
        self._children: set[ChildProcess] = set()
        self._chores = TaskSet("supervisor", failure="a part of the supervisor failed; the processes continue")
        self._one_at_a_time = asyncio.Lock()
        self._recycle_after = 0.0
        self._signals = 0
        self._is_proven = False
        self._exit_code = 0
        self._memory = OutOfMemory()
        self._orphans = Orphans()
        self._systemd = Systemd(os.environ)
        most = supervision.most or supervision.processes
        self._autoscale = Autoscale(least=supervision.processes, most=most, calm=supervision.calm)
        self._overview = FleetStatus(
            order.target, self._slots, self._children, least=supervision.processes, most=most
        )

    async def run(self) -> int:
        """Run until stopped by a signal, or, in a burst, until all have ended; return the exit code.

        Raises:
            InvalidOption: health cannot be served at its address.
        """
        async with AsyncExitStack() as parts:
            if self._supervision.health is not None:
                await parts.enter_async_context(serving(self._supervision.health, self._health()))
            with self._signals_received():
                try:
                    for _ in range(self._supervision.processes):
                        self._add_slot()
                    self._chores.start(self._check_repeatedly())
                    if self._supervision.watch:
                        self._chores.start(self._reload_on_change())
                    await self._all_retired()
                finally:
                    await self._end()
        return self._exit_code

    def stop(self) -> None:
        """Shut down in three stages, one per call: drain, return running jobs, kill."""
        self._signals += 1
        words = {1: "draining; again to give back what runs, a third time to kill", 2: "giving back what runs"}
        _log.warning("stopping: %s", words.get(self._signals, "killing"))
        self._end_processes()

    def _end_processes(self) -> None:
        """Drain, return jobs or kill, according to the number of signals."""
        self._systemd.stopping()
        for slot in self._slots:
            slot.retire()
        for child in self._children:
            if self._signals == 1:
                child.drain()
            elif self._signals == 2:
                child.requeue_now()
            else:
                child.kill()

    def restart(self) -> None:
        """Replace all processes, one after the other, unless the new code does not start."""
        if self.is_stopping:
            return
        _log.warning("restarting %d processes, one after the other", len(self._slots))
        self._systemd.reloading()
        self._chores.start(self._roll("restarting", patient=True))

    @property
    def is_stopping(self) -> bool:
        return self._signals > 0

    def status(self) -> SupervisorStatus:
        return self._overview.status(wanted=self._wanted, is_stopping=self.is_stopping)

    def snapshot(self) -> Snapshot:
        """Return the metrics for monitoring."""
        return self._overview.snapshot(wanted=self._wanted)

    @property
    def _wanted(self) -> int:
        return sum(not slot.is_retiring for slot in self._slots)

    def _add_slot(self) -> None:
        taken = {slot.number for slot in self._slots}
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        slot = ProcessSlot(
            number,
            start=self._start,
            judge=self._describe_exit,
            proven=lambda: self._is_proven,
            burst=self._order.config.burst,
        )
        self._slots.append(slot)
        self._running[asyncio.create_task(slot.run())] = slot

    async def _all_retired(self) -> None:
        while self._running:
            done, _ = await asyncio.wait(tuple(self._running), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                self._slots.remove(self._running.pop(task))
                match task.result():
                    case "unusable":
                        self._exit_code = EXIT_USAGE
                        if not self.is_stopping:
                            # The error was logged, and no stop was requested.
                            self._signals = 1
                            self._end_processes()
                    case "dismissed":
                        self._autoscale.dismiss()
                    case "done":
                        pass

    async def _start(self, slot: ProcessSlot) -> ChildProcess:
        # One process that looks is enough, and the first slot is never removed before the others.
        looks = slot.number == 0 and (self._supervision.most is not None or self._supervision.health is not None)
        order = msgspec.structs.replace(self._order, looks=looks)
        patience = self._order.config.grace + self._supervision.drained_after
        child = await ChildProcess.start(order, on_ready=self._report_ready, patience=patience)
        self._children.add(child)
        child.ended.add_done_callback(lambda _: self._on_child_gone(child))
        if self.is_stopping:
            child.drain()
        return child

    def _on_child_gone(self, child: ChildProcess) -> None:
        self._children.discard(child)
        self._overview.keep(child)

    def _describe_exit(self, code: int) -> ExitReason:
        ending = self._memory.ending(code)
        self._overview.note(ending)
        return ending

    def _report_ready(self, ready: ChildReady) -> None:
        if not self._is_proven:
            self._is_proven = True
            self._systemd.ready()
        if self._on_ready is not None:
            self._on_ready(ready)
            self._on_ready = None

    async def _end(self) -> None:
        for task in self._running:
            task.cancel()
        await self._chores.aclose()
        await asyncio.gather(*self._running, return_exceptions=True)
        # Replaced processes, and their intended successors.
        children = tuple(self._children)
        for child in children:
            child.drain()
        if children:
            await asyncio.wait([child.ended for child in children])

    async def _roll(self, why: str, *, patient: bool) -> None:
        """Replace all, one after the other; `patient`: wait for each old one's end before the next replacement."""
        for slot in self._slots:
            # A slot whose process does not start tries the new code now.
            slot.restart_now()
        async with self._one_at_a_time:
            for slot in tuple(self._slots):
                old = await slot.replace(why)
                if old is not None:
                    self._overview.replaced += 1
                    if patient:
                        await asyncio.wait((old.ended,))
                elif slot.current is not None and not slot.is_retiring:
                    break
            else:
                _log.info("all processes were replaced")
                self._on_restart()
        self._systemd.ready()

    async def _recycle(self, slot: ProcessSlot, why: str) -> None:
        async with self._one_at_a_time:
            old = await slot.replace(why)
            if old is None:
                self._recycle_after = time.monotonic() + _RECYCLE_AGAIN
                return
            self._overview.replaced += 1
            await asyncio.wait((old.ended,))

    async def _reload_on_change(self) -> None:
        try:
            async for changed in _changes(self._supervision.watch):
                _log.warning("changed: %s; reloading", ", ".join(sorted(changed)))
                await self._roll("the code has changed", patient=False)
        except (OSError, RuntimeError):
            # The system may refuse to watch: the worker continues unchanged.
            _log.exception("watching for changes failed; the worker continues")

    async def _check_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            try:
                self._orphans.collect()
                if self.is_stopping:
                    continue
                self._kill_hung_children()
                self._recycle_at_limits()
                if self._supervision.most is not None:
                    self._scale()
                self._notify_systemd()
            except Exception:  # noqa: BLE001 - logged, and not the end of the looks
                # A failed check must not be the last one: hung processes would go unseen.
                _log.critical("checking the worker processes failed; next check in %g s", _LOOK, exc_info=True)

    def _kill_hung_children(self) -> None:
        longest = self._supervision.unresponsive_after
        for child in self._children:
            if longest is not None and child.silent > longest and not child.ended.done():
                _log.error("worker process %d was silent for %.0f s: killing it", child.pid, child.silent)
                child.kill()

    def _recycle_at_limits(self) -> None:
        limits, now = self._supervision.limits, time.monotonic()
        if not limits or self._one_at_a_time.locked() or now < self._recycle_after:
            return
        for slot in self._slots:
            child = slot.current
            if child is None or child.status is None or child.ready_at is None or child.is_draining:
                continue
            why = limits.find_reached(child.status, age=now - child.ready_at, luck=child.luck)
            if why is not None:
                self._chores.start(self._recycle(slot, why))
                return

    def _scale(self) -> None:
        load = self._overview.load()
        wanted = self._autoscale.look(load)
        if wanted == self._wanted:
            return
        _log.info(
            "%d processes instead of %d: busy %.0f %%, %.1f cores, %s messages wait, %.1f jobs/s",
            wanted,
            self._wanted,
            100 * load.busy / max(load.slots, 1),
            load.cpu,
            "?" if load.backlog is None else load.backlog,
            load.rate,
        )
        while self._wanted < wanted:
            self._add_slot()
        while self._wanted > wanted:
            # The youngest: it has warmed up the least.
            max((slot for slot in self._slots if not slot.is_retiring), key=lambda slot: slot.number).retire()

    def _notify_systemd(self) -> None:
        ready = sum(child.consumes and not child.is_paused for child in self._children)
        self._systemd.status(f"{ready} of {self._wanted} processes take jobs")
        if not self._overview.silent(self._supervision.liveness_timeout):
            self._systemd.alive()

    def _health(self) -> Health:
        return Health(
            silent=lambda: self._overview.silent(self._supervision.liveness_timeout),
            not_ready=lambda: self._overview.not_ready(is_stopping=self.is_stopping),
            status=self.status,
            open_metrics=self._open_metrics,
        )

    def _open_metrics(self) -> Exporter:
        # Imported here: it imports the contracts of brokers and states, which a supervisor needs for nothing else.
        from taskmq.client.plugins import open_metrics

        return open_metrics(self.snapshot)

    @contextlib.contextmanager
    def _signals_received(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        # As `nohup` sets it: the process outlives the terminal.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self.stop if _has_terminal() else self.restart)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


async def _changes(folders: tuple[str, ...]) -> AsyncIterator[set[str]]:
    """Yield the changed files below `folders`, a moment after each change.

    Raises:
        OSError, RuntimeError: the system refuses to watch them.
    """
    # Only `--watch` needs it, and it is an extra.
    from watchfiles import PythonFilter, awatch  # pyright: ignore[reportUnknownVariableType] - of trio's, not there

    async for found in awatch(*folders, watch_filter=PythonFilter(), debounce=200, step=50):
        yield {path for _, path in found}
