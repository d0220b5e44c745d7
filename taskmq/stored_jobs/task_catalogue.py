"""`app.jobs.catalogue`: tasks registered by workers and schedulers, for callers without the tasks' code."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.jobs import Catalogued
from taskmq.errors import EncodeError, InvalidArguments, UnsupportedFeature
from taskmq.model.envelope import JSON
from taskmq.model.jobs.call_schemas import bind_arguments
from taskmq.model.jobs.registrations import RegisteredTask, TaskRegistration, in_force
from taskmq.model.values.return_type import PLAIN
from taskmq.model.values.schemas import open_validator
from taskmq.model.values.wire_form import decode_value

# Size and lifetime of the cache: submissions by name arrive by the thousand.
_CACHE_SIZE: Final = 1_000
_CACHE_SECONDS: Final = 5.0


class RegisteredSignature:
    """The signature of a task whose code is elsewhere; arguments are checked by its registered schema."""

    def __init__(self, registration: TaskRegistration) -> None:
        self.registration = registration
        self._validator: Any = None

    @property
    def names(self) -> frozenset[str]:
        """Parameters that can be given by name."""
        return frozenset(msgspec.json.decode(self.registration.schema).get("properties", ()))

    def encode(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], content_type: str = JSON
    ) -> tuple[msgspec.Raw, msgspec.Raw]:
        """Encode the arguments of a call.

        Raises:
            InvalidArguments: the arguments do not match the schema; the message names the field.
            EncodeError: an argument cannot be encoded.
            UnsupportedFeature: the schema validator is not installed.
        """
        task = self.registration.task
        try:
            raw_args, raw_kwargs = PLAIN.encode(list(args), content_type), PLAIN.encode(dict(kwargs), content_type)
        except EncodeError as error:
            raise EncodeError(f"task {task}: {error}") from error.__cause__
        arguments = bind_arguments(
            self.registration, decode_value(raw_args, content_type), decode_value(raw_kwargs, content_type)
        )
        self._check(arguments)
        return msgspec.Raw(raw_args), msgspec.Raw(raw_kwargs)

    def check_part(self, arguments: dict[str, Any]) -> None:
        """Check that the task accepts these arguments by name; others may be missing.

        Raises:
            InvalidArguments: it does not; the message names the field.
            UnsupportedFeature: the schema validator is not installed.
        """
        schema: dict[str, Any] = {**msgspec.json.decode(self.registration.schema), "required": []}
        self._raise_first(self._open(schema), arguments)

    def _check(self, arguments: dict[str, Any]) -> None:
        if self._validator is None:
            self._validator = self._open(msgspec.json.decode(self.registration.schema))
        self._raise_first(self._validator, arguments)

    def _open(self, schema: dict[str, Any]) -> Any:
        purpose = f"task {self.registration.task}: arguments that are checked without the task's code"
        return open_validator(schema, purpose=purpose)

    def _raise_first(self, validator: Any, arguments: dict[str, Any]) -> None:
        # Only the first error, as the task's own code would raise it.
        for error in validator.iter_errors(arguments):
            raise InvalidArguments(
                f"task {self.registration.task}: {error.message}{_format_path(error.instance_path)}"
            )


class TaskPage(msgspec.Struct, frozen=True):
    """A page of tasks, sorted by name.

    Attributes:
        after: cursor of the next page; None at the end.
    """

    tasks: list[RegisteredTask]
    after: str | None


class TaskCatalogue:
    """The tasks registered in the app's store. Methods that start with `a` are for coroutines.

    Every method may raise `StoreUnavailable`, and `UnsupportedFeature` if no store of the app keeps registrations.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._signatures: dict[str, tuple[float, RegisteredSignature]] = {}

    async def afind(self, name: str) -> RegisteredTask | None:
        """Return the registration of a task; None if there is none."""
        return in_force(await catalogue_of(self._sessions).tasks.registrations([name]))

    find = blocking(afind)

    async def alist(self, prefix: str = "", *, after: str | None = None, limit: int = 50) -> TaskPage:
        """Return up to `limit` tasks whose names start with `prefix`, sorted, after `after`."""
        tasks = catalogue_of(self._sessions).tasks
        names = await tasks.names(prefix=prefix, after=after, limit=limit + 1)
        found = await tasks.registrations(names[:limit])
        known = (in_force([one for one in found if one.registration.task == name]) for name in names[:limit])
        return TaskPage([one for one in known if one is not None], names[limit - 1] if len(names) > limit else None)

    list = blocking(alist)

    async def signature(self, name: str) -> RegisteredSignature | None:
        """Return the signature of a task; None if it is not registered. Changes apply within five seconds."""
        now = self._sessions.clock.monotonic()
        known = self._signatures.get(name)
        if known is not None and now - known[0] < _CACHE_SECONDS:
            return known[1]
        if (found := await self.afind(name)) is None:
            return None
        is_same = known is not None and known[1].registration == found.registration
        signature = known[1] if known is not None and is_same else RegisteredSignature(found.registration)
        if len(self._signatures) >= _CACHE_SIZE:
            self._signatures.clear()
        self._signatures[name] = (now, signature)
        return signature


def catalogue_of(sessions: Sessions) -> Catalogued:
    """Return the app's store as one that keeps definitions and registrations.

    Raises:
        UnsupportedFeature: the app has no such store.
    """
    store = sessions.store()
    if not isinstance(store, Catalogued):
        raise UnsupportedFeature(
            f"the job store {store.address} keeps neither definitions nor registrations of tasks"
        )
    return store


def _format_path(path: Sequence[str | int]) -> str:
    if not path:
        return ""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f" - at `{text.removeprefix('.')}`"
