"""Test processes that are forked after the collection: `pytest --processes 5`.

The tests of the gate take 17 s of processor time to collect. A process that begins as a copy of this one has them.

Each process runs one unit of tests after the other. Most units are single tests; the tests of a module that share a
fixture of the module are one unit. Each process has its own fixtures of the session.

A RabbitMQ node costs 6 s of processor time to start, and a hundredth of a processor while it waits. Two processes
therefore run the tests that need one, and the others join them only when all other tests have begun.
"""

import functools
import multiprocessing
import warnings
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import coverage
import pytest

from tests import ignored_signals

_FORK: Final = multiprocessing.get_context("fork")
_SECONDS_TO_END: Final = 60
_PROCESSES_WITH_NODE: Final = 2

# Indexes of the collected tests.
_Unit: TypeAlias = list[int]
# A hook of pytest with its arguments; "ready" asks for a unit.
_Message: TypeAlias = tuple[str, dict[str, Any]]
_ENDED: Final[_Message] = ("ended", {})


class Distribution:
    """Distributes units of tests to processes, and reports their results as if the tests had run here."""

    def __init__(self, count: int) -> None:
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.getoption("collectonly"):
            return None  # pytest's own loop reports errors of the collection
        if (terminal := session.config.pluginmanager.get_plugin("terminalreporter")) is not None:
            terminal.showfspath = False  # the results of several modules alternate
        units = Units(session.items)
        processes = list[_Process]()
        number = 0
        try:
            while units or processes:
                while units and len(processes) < self._count:
                    processes.append(_Process(session, number, processes))
                    number += 1
                ready = wait([end for each in processes for end in (each.connection, each.process.sentinel)])
                for process in [each for each in processes if {each.connection, each.process.sentinel} & {*ready}]:
                    if not process.step(units):
                        processes.remove(process)
                if session.shouldfail or session.shouldstop:
                    units.clear()
        finally:
            for process in processes:
                process.end()
        return True


class Units:
    """Units that no process has begun, in the order of their first tests."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        units: dict[str | Path, _Unit] = {}
        for index, item in enumerate(items):
            units.setdefault(item.path if _is_shared(item.path) else item.nodeid, []).append(index)
        self._items = items
        self._left: dict[bool, deque[_Unit]] = {True: deque(), False: deque()}
        for unit in units.values():
            self._left[self._needs_node(unit)].append(unit)

    def __bool__(self) -> bool:
        return any(self._left.values())

    def take(self, *, has_node: bool) -> _Unit:
        """Remove and return a unit; an empty one if none is left.

        The first unit with the same need of a node is preferred.
        """
        units = self._left[has_node] or self._left[not has_node]
        return units.popleft() if units else []

    def put_back(self, unit: _Unit) -> None:
        """Make it the next one."""
        self._left[self._needs_node(unit)].appendleft(unit)

    def clear(self) -> None:
        for units in self._left.values():
            units.clear()

    def _needs_node(self, unit: _Unit) -> bool:
        return any(self._items[index].get_closest_marker("rabbitmq") is not None for index in unit)


@functools.cache
def _is_shared(module: Path) -> bool:
    """Whether the tests of a module share a fixture of the module or of its `conftest.py`."""
    makers = (module, module.with_name("conftest.py"))
    return any('scope="module"' in maker.read_text() for maker in makers if maker.exists())


class _Process:
    """A test process, as the distributing process has it."""

    def __init__(self, session: pytest.Session, number: int, others: Sequence["_Process"]) -> None:
        self._has_node: bool = sum(each._has_node for each in others) < _PROCESSES_WITH_NODE
        self.connection, inside = _FORK.Pipe()
        # A connection closes with this process only if the others have no copies of this end.
        copies = [self.connection, *(each.connection for each in others)]
        self.process = _FORK.Process(target=_run_units, args=(session, number, inside, copies))
        self.process.start()
        inside.close()
        self._session = session
        self._unit: _Unit = []

    def step(self, units: Units) -> bool:
        """Process one message; return False if the process has ended.

        Raises:
            RuntimeError: the process failed outside a test; its output has the traceback.
        """
        hook, arguments = self._receive()
        if hook == "ready":
            self._unit = units.take(has_node=self._has_node)
            self.connection.send(self._unit)
        elif hook != "ended":
            self._report(hook, arguments)
        else:
            self.end()
            if self._session.shouldfail or self._session.shouldstop:
                return False  # it has left the rest of its unit, as it should
            if self._unit:
                self._report_crash()
            elif self.process.exitcode:
                raise RuntimeError(f"a test process ended with {self.process.exitcode}")
            if self._unit:
                units.put_back(self._unit)
        return hook != "ended"

    def end(self) -> None:
        """Wait until it has finished its test and its fixtures, and kill it if that takes too long."""
        self.connection.close()
        self.process.join(_SECONDS_TO_END)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _receive(self) -> _Message:
        try:
            # Without a message, the process has ended, and one of its children may hold the connection open.
            return self.connection.recv() if self.connection.poll() else _ENDED
        except (EOFError, ConnectionResetError):
            return _ENDED

    def _report(self, hook: str, arguments: dict[str, Any]) -> None:
        config = self._session.config
        if hook == "pytest_runtest_logfinish":
            del self._unit[0]
        elif hook == "pytest_runtest_logreport":
            report = config.hook.pytest_report_from_serializable(config=config, data=arguments["report"])
            arguments = {"report": report}
        getattr(config.hook, hook)(**arguments)

    def _report_crash(self) -> None:
        item = self._session.items[self._unit.pop(0)]
        message = f"its process ended with {self.process.exitcode}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", message, "call")
        item.ihook.pytest_runtest_logreport(report=report)


class _Reporter:
    """Sends the results of the tests of a process."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._send("pytest_runtest_logstart", nodeid=nodeid, location=location)

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._send("pytest_runtest_logfinish", nodeid=nodeid, location=location)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send("pytest_runtest_logreport", report=data)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        warning_message.source = None  # any object
        self._send(
            "pytest_warning_recorded", warning_message=warning_message, when=when, nodeid=nodeid, location=location
        )

    def _send(self, hook: str, **arguments: object) -> None:
        self._connection.send((hook, arguments))


def _run_units(session: pytest.Session, number: int, connection: Connection, copies: Sequence[Connection]) -> None:
    """Run units until none arrives; the main function of a test process."""
    for copy in copies:
        copy.close()
    config, plugins = session.config, session.config.pluginmanager
    # pytest's own plugins write no cache if they find this name of pytest-xdist.
    config.workerinput = {}  # type: ignore[attr-defined]
    ignored_signals.hide_from_children(is_worker=True)
    folders = config._tmp_path_factory  # type: ignore[attr-defined]
    folders._basetemp = folders.mktemp(f"process-{number}", numbered=False)
    capture: Any = plugins.get_plugin("capturemanager")
    # The files that the distributing process captures output in are not shared.
    capture.stop_global_capturing()
    capture.start_global_capturing()
    plugins.unregister(name="terminalreporter")
    plugins.register(_Reporter(config, connection))
    try:
        while unit := _ask(connection):
            for index, item in enumerate(items := [session.items[each] for each in unit]):
                # A session is no test, but like one it says which fixtures to keep: its own.
                following = items[index + 1] if index + 1 < len(items) else cast("pytest.Item", session)
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail or session.shouldstop:
                    return
    except KeyboardInterrupt:
        pass
    finally:
        # Errors of the session's fixtures are shown.
        capture.stop_global_capturing()
        config.hook.pytest_sessionfinish(session=session, exitstatus=0)
        if (measurement := coverage.Coverage.current()) is not None:
            measurement.stop()
            measurement.save()


def _ask(connection: Connection) -> _Unit:
    """Return the next unit; none if there are no more, or if the distributing process has ended."""
    try:
        connection.send(("ready", {}))
        return cast("_Unit", connection.recv())
    except (EOFError, OSError):
        return []
