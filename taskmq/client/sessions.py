"""An app's settings and sessions, and access to them from code without an event loop.

There is one `Session` for each event loop that uses the app, and one on the portal's loop for callers without a loop.
Everything connects on first use and never crosses a fork.
"""

import asyncio
import atexit
import contextlib
import functools
import os
import warnings
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

from taskmq.client.large_values import LargeArguments
from taskmq.client.plugins import open_blobs, open_broker, open_state, open_store
from taskmq.client.portal import Portal, close_on_portals, current_portal, is_portal_thread
from taskmq.client.session import Session
from taskmq.client.settings import DEFAULT_URL, Settings, load_settings
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.loggers import contain_ours
from taskmq.contracts.stores import BlobStore, Coordinator, DelayStore, coordinator_required, require_store
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.clock import Clock
from taskmq.model.telemetry.app_versions import check_app_version
from taskmq.model.units import Duration, Size, parse_duration, parse_seconds, parse_size

if TYPE_CHECKING:
    from taskmq.contracts.jobs import JobStore

P = ParamSpec("P")
T = TypeVar("T")

_Sessions = dict[int, tuple[int, asyncio.AbstractEventLoop, Session]]
_Exchanged = tuple[Settings | None, Clock, _Sessions]
_DELAYS: Final = "delay='state' needs"
_EMBEDDED: Final = ("local://", "memory://")
_MAX_AGE: Final = "30s"


class Patience(NamedTuple):
    """A time limit for waiting, and advice if it is exceeded."""

    seconds: float
    advice: str


class Sessions:
    """The settings and sessions of an app; the arguments are those of `taskmq.TaskMQ`.

    Attributes:
        patience: the time limit of waits for results without a timeout; None for no limit.
        send_timeout: the time limit of every send, in seconds.
        result_ttl: how long results are kept by default, in seconds.

    Raises:
        InvalidOption: a value is invalid.
    """

    def __init__(
        self,
        *,
        url: str | None,
        state: str | None,
        store: str | None,
        store_replica: str | None,
        store_replica_max_age: Duration | None,
        results_at: str | None,
        app_version: str | None,
        result_ttl: Duration,
        result_inline: Size,
        args_inline: Size | None,
        args_ttl: Duration,
        name: str,
        delay: Literal["broker", "state"],
        send_timeout: Duration,
        clock: Clock | None,
    ) -> None:
        # Applies to the whole process, whatever it uses the app for.
        contain_ours()
        if delay not in ("broker", "state"):
            raise InvalidOption(f"delay={delay!r}: must be 'broker' or 'state'")
        self.delay: Literal["broker", "state"] = delay
        self.clock: Clock = clock or SystemClock()
        self.send_timeout: float = parse_duration(send_timeout, what="send_timeout").total_seconds()
        self.result_ttl: float = parse_duration(result_ttl, what="result_ttl").total_seconds()
        self._result_inline = parse_size(result_inline, what="result_inline")
        self._args_inline = None if args_inline is None else parse_size(args_inline, what="args_inline")
        self._args_ttl = parse_duration(args_ttl, what="args_ttl").total_seconds()
        self._given = Settings(
            url=url,
            state=state,
            store=store,
            store_replica=store_replica,
            results_at=results_at,
            app_version=None if app_version is None else check_app_version(app_version),
        )
        self._replica_max_age = store_replica_max_age
        self._settings: Settings | None = None
        self._connection_name = self._app_name = name
        self._sessions: _Sessions = {}
        self._abandoned: list[Session] = []
        self._has_warned = False
        self.patience: Patience | None = None
        self.job_store: Callable[[BrokerOptions], JobStore] | None = None

    @property
    def app_version(self) -> str:
        """The version of the app's code; "" without one. Raises what `settings` raises."""
        return self.settings.app_version or ""

    @property
    def settings(self) -> Settings:
        """The effective settings; values given in code take precedence.

        Raises:
            InvalidSetting: the environment or settings file has an unknown key or a malformed value.
        """
        if self._settings is None:
            found = load_settings(os.environ, Path.cwd())
            given = {
                key: value
                for key in ("url", "state", "store", "store_replica", "results_at", "app_version")
                if (value := getattr(self._given, key)) is not None
            }
            self._settings = replace(found, **given, origin={**found.origin, **dict.fromkeys(given, "code")})
        return self._settings

    def configure(
        self,
        *,
        url: str | None = None,
        state: str | None = None,
        store: str | None = None,
        store_replica: str | None = None,
        name: str | None = None,
    ) -> None:
        """Override the settings from code before first use, as command-line flags do.

        Raises:
            InvalidOption: the app is already in use.
        """
        if self._sessions:
            raise InvalidOption("configure() after the app has been used: it would not change open connections")
        given = self._given
        self._given = replace(
            given,
            url=url or given.url,
            state=state or given.state,
            store=store or given.store,
            store_replica=store_replica or given.store_replica,
        )
        self._settings = None
        self._connection_name = name or self._connection_name

    @property
    def url(self) -> str:
        """The broker's URL, including its password."""
        return self.settings.url or DEFAULT_URL

    @property
    def store_url(self) -> str | None:
        """The job store's URL, including its password; None if there is none."""
        return self.settings.store

    @property
    def state_url(self) -> str | None:
        """The state's URL; None if there is none."""
        if (state := self.settings.state) is not None:
            return state
        return self.url if self.url.startswith(_EMBEDDED) else None

    def check_coordinator(self, what: str) -> None:
        """Check that locks and groups have a coordinator.

        Args:
            what: the user of the coordinator, as subject and verb, such as "locks need".

        Raises:
            UnsupportedFeature: there is neither a state nor a store.
        """
        if self.state_url is None and self.store_url is None:
            raise coordinator_required(what)

    def coordinator(self) -> Coordinator:
        """Return the coordinator of locks and groups in the running loop's session.

        Raises:
            UnsupportedFeature: there is neither a state nor a store.
        """
        if (found := self.current().coordinator) is None:
            raise coordinator_required("locks need")
        return found

    def current(self) -> Session:
        """Return the session of the running loop, opened on first use.

        Raises:
            InvalidSetting: no adapter serves the URL.
            InvalidOption: large arguments have no store, or `delay="state"` is combined with a job store.
            UnsupportedFeature: the job store has no replicas, and one is set.
        """
        loop = asyncio.get_running_loop()
        found = self._sessions.get(id(loop))
        if found is not None and found[0] == os.getpid() and found[1] is loop:
            return found[2]
        self._forget_dead_sessions()
        options = BrokerOptions(name=self._connection_name, clock=self.clock, app=self._app_name)
        state_url = self.state_url
        if self.store_url is not None and self.delay == "state":
            raise InvalidOption(
                "delay='state' with a job store: its schedulers already delay jobs. Omit delay=; "
                "`taskmq store import` moves jobs delayed in the state"
            )
        state = None if state_url is None else open_state(state_url, options)
        blobs = None if (place := self.settings.results_at) is None else open_blobs(place, options)
        session = Session(
            open_broker(self.url, options),
            state,
            send_timeout=self.send_timeout,
            store=self._open_store(options),
            delays=require_store(state, _DELAYS).delays if self.delay == "state" else None,
            blobs=blobs,
            inline=self._result_inline,
            arguments=self._arguments(blobs),
            clock=self.clock,
        )
        self._sessions[id(loop)] = (os.getpid(), loop, session)
        return session

    def _open_store(self, options: BrokerOptions) -> "JobStore | None":
        if self.job_store is not None:
            return self.job_store(options)
        if self.store_url is None:
            return None
        store = open_store(self.store_url, options)
        if (replica := self.settings.store_replica) is not None:
            _read_from(store, replica, self._replica_max_age or self.settings.store_replica_max_age or _MAX_AGE)
        return store

    def _arguments(self, blobs: BlobStore | None) -> LargeArguments | None:
        if blobs is not None:
            return LargeArguments(blobs, self.clock, inline=self._args_inline, ttl=self._args_ttl)
        if self._args_inline is None:
            return None
        raise InvalidOption("args_inline= needs a store for larger arguments: set results_at=")

    def _forget_dead_sessions(self) -> None:
        for key, (pid, loop, session) in list(self._sessions.items()):
            if pid != os.getpid():
                # A session of the parent process stays referenced, because its sockets must not be closed here.
                self._abandoned.append(session)
                self._sessions.pop(key, None)
            elif loop.is_closed():
                self._sessions.pop(key, None)

    def store(self, what: str = "submitted jobs need") -> "JobStore":
        """Return the job store of the running loop's session.

        Args:
            what: the user of the store, as subject and verb.

        Raises:
            UnsupportedFeature: the app has no job store.
        """
        if (store := self.current().store) is None:
            raise UnsupportedFeature(
                f"{what} a store: set TaskMQ(..., store='postgresql://...') or, on one host, "
                "store='sqlite:///jobs.db', or $TASKMQ_STORE, and run `taskmq scheduler`"
            )
        return store

    def delays(self) -> DelayStore:
        """Return the store of delayed jobs of the running loop's session.

        Raises:
            UnsupportedFeature: the app has no state.
        """
        return require_store(self.current().stores.delays, _DELAYS)

    async def aclose(self) -> None:
        """Close the running loop's connections. Sent messages are with the broker before this returns."""
        found = self._sessions.pop(id(asyncio.get_running_loop()), None)
        if found is not None and found[0] == os.getpid():
            await found[2].aclose()

    def close(self) -> None:
        """Close the connections opened by sends without a loop. Using the app again opens new ones."""
        if any(pid == os.getpid() for pid, _, _ in list(self._sessions.values())):
            close_on_portals(self.aclose)

    def exchange(self, settings: Settings | None, clock: Clock, sessions: _Sessions) -> _Exchanged:
        """Replace these values and return the previous ones."""
        before = (self._settings, self.clock, self._sessions)
        self._settings, self.clock, self._sessions = settings, clock, sessions
        return before

    def run_sync(self, call: Coroutine[Any, Any, T], *, instead: str) -> T:
        """Run a coroutine of this app from code without an event loop."""
        try:
            portal = self.portal(instead)
        except BaseException:
            call.close()
            raise
        return portal.call(lambda: call)

    def portal(self, instead: str) -> Portal:
        """Return the thread that serves callers without an event loop.

        Args:
            instead: the coroutine to recommend to callers with a loop.

        Raises:
            BrokerUnavailable: the interpreter is shutting down.
        """
        portal = current_portal()
        self._warn_inside_loop(instead)
        _close_at_exit(self)
        return portal

    def _warn_inside_loop(self, instead: str) -> None:
        # Finalizers and logging handlers may run in a portal's thread, and have no alternative.
        if self._has_warned or is_portal_thread():
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._has_warned = True
        warnings.warn(
            f"a blocking taskmq call inside a running event loop blocks that loop: use `{instead}`",
            RuntimeWarning,
            stacklevel=5,
        )


def _read_from(store: "JobStore", replica: str, max_age: Duration) -> None:
    from taskmq.contracts.jobs import Replicated

    if not isinstance(store, Replicated):
        raise UnsupportedFeature(
            f"store_replica= needs a job store in PostgreSQL, this one is {store.address}: omit store_replica= and "
            "$TASKMQ_STORE_REPLICA"
        )
    store.use_replica(replica, max_age=parse_seconds(max_age, what="store_replica_max_age"))


class _HasSessions(Protocol):
    @property
    def _sessions(self) -> Sessions: ...


Asker = TypeVar("Asker", bound=_HasSessions)


def blocking(call: Callable[Concatenate[Asker, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Asker, P], T]:
    """Create the blocking counterpart of an asynchronous method.

    As in `get = blocking(aget)`. Type checkers, editors and `help` see the original's signature and docstring.
    Methods with overloads, or of classes generic in their parameters, need a written counterpart: there, checkers
    choose the wrong overload and editors lose the docstring.

    Args:
        call: a method whose name starts with `a`, of a class with its app's sessions in `_sessions`.
    """
    name = call.__name__

    @functools.wraps(call)
    def twin(self: Asker, /, *args: P.args, **kwargs: P.kwargs) -> T:
        sessions = self._sessions  # pyright: ignore[reportPrivateUsage]
        # By name, because a subclass may override it.
        started: Coroutine[Any, Any, T] = getattr(self, name)(*args, **kwargs)
        return sessions.run_sync(started, instead=name)

    twin.__name__, twin.__qualname__ = name[1:], f"{call.__qualname__.removesuffix(name)}{name[1:]}"
    return twin


_to_close: "weakref.WeakSet[Sessions]" = weakref.WeakSet()


def _close_at_exit(app: Sessions) -> None:
    if not _to_close:
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _to_close.add(app)


def _close_all() -> None:
    for app in list(_to_close):
        with contextlib.suppress(Exception):
            app.close()
