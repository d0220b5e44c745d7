"""`app.jobs.catalogue`: tasks as their workers and schedulers have registered them, for those who have no code."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.jobs import Catalogued
from taskmq.errors import EncodeError, InvalidArguments, UnsupportedFeature
from taskmq.model.codec import PLAIN
from taskmq.model.envelope import JSON
from taskmq.model.jobs.call_schemas import bind_arguments
from taskmq.model.jobs.registrations import RegisteredTask, TaskRegistration, in_force
from taskmq.model.values.wire_form import decode_value

__all__ = ["RegisteredSignature", "TaskCatalogue", "TaskPage", "catalogue_of"]

# So many tasks are remembered, each for so long: submissions by name come by the thousand.
_REMEMBERED: Final = 1_000
_SECONDS: Final = 5.0


class RegisteredSignature:
    """The call of a task whose code is elsewhere: its arguments are checked by the schema that was registered."""

    def __init__(self, registration: TaskRegistration) -> None:
        self.registration = registration
        self._validator: Any = None

    @property
    def names(self) -> frozenset[str]:
        """The parameters that can be given by name."""
        return frozenset(msgspec.json.decode(self.registration.schema).get("properties", ()))

    def encode(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], content_type: str = JSON
    ) -> tuple[msgspec.Raw, msgspec.Raw]:
        """The call in its wire form.

        Raises:
            InvalidArguments: the arguments do not fit the schema; names the field.
            EncodeError: one has no form on the wire.
            UnsupportedFeature: what checks schemas is not installed.
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
        """See that the task takes these arguments, by the names of their parameters; others may be lacking.

        Raises:
            InvalidArguments: it does not; names the field.
            UnsupportedFeature: what checks schemas is not installed.
        """
        schema: dict[str, Any] = {**msgspec.json.decode(self.registration.schema), "required": []}
        self._complain(_validator(self.registration.task, schema), arguments)

    def _check(self, arguments: dict[str, Any]) -> None:
        if self._validator is None:
            self._validator = _validator(self.registration.task, msgspec.json.decode(self.registration.schema))
        self._complain(self._validator, arguments)

    def _complain(self, validator: Any, arguments: dict[str, Any]) -> None:
        # The first error only, as the task's own code says it.
        for error in validator.iter_errors(arguments):
            raise InvalidArguments(f"task {self.registration.task}: {error.message}{_place(error.instance_path)}")


class TaskPage(msgspec.Struct, frozen=True):
    """Some tasks, by their names.

    Attributes:
        after: where the next page begins; None where there is none.
    """

    tasks: list[RegisteredTask]
    after: str | None


class TaskCatalogue:
    """Asks the store of the running loop's session. What begins with `a` is for coroutines.

    Each may raise `StoreUnavailable`, and `UnsupportedFeature` where the app has no store, or one that keeps no
    registrations.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._signatures: dict[str, tuple[float, RegisteredSignature]] = {}

    async def afind(self, name: str) -> RegisteredTask | None:
        """Return what is known of a task; None if nothing is."""
        return in_force(await catalogue_of(self._sessions).tasks.registrations([name]))

    find = blocking(afind)

    async def alist(self, prefix: str = "", *, after: str | None = None, limit: int = 50) -> TaskPage:
        """Up to `limit` tasks whose names begin so, by name, from behind `after`."""
        tasks = catalogue_of(self._sessions).tasks
        names = await tasks.names(prefix=prefix, after=after, limit=limit + 1)
        found = await tasks.registrations(names[:limit])
        known = (in_force([one for one in found if one.registration.task == name]) for name in names[:limit])
        return TaskPage([one for one in known if one is not None], names[limit - 1] if len(names) > limit else None)

    list = blocking(alist)

    async def signature(self, name: str) -> RegisteredSignature | None:
        """How the task is called; None where nothing is known of it. A change counts within five seconds."""
        now = self._sessions.clock.monotonic()
        known = self._signatures.get(name)
        if known is not None and now - known[0] < _SECONDS:
            return known[1]
        if (found := await self.afind(name)) is None:
            return None
        is_same = known is not None and known[1].registration == found.registration
        signature = known[1] if known is not None and is_same else RegisteredSignature(found.registration)
        if len(self._signatures) >= _REMEMBERED:
            self._signatures.clear()
        self._signatures[name] = (now, signature)
        return signature


def catalogue_of(sessions: Sessions) -> Catalogued:
    """The app's store, which keeps definitions and registrations.

    Raises:
        UnsupportedFeature: the app has none, or it keeps no such things.
    """
    store = sessions.store()
    if not isinstance(store, Catalogued):
        raise UnsupportedFeature(f"the job store {store.address} keeps neither definitions nor what tasks there are")
    return store


def _validator(task: str, schema: dict[str, Any]) -> Any:
    try:
        from jsonschema_rs import Draft202012Validator
    except ImportError as error:
        raise UnsupportedFeature(
            f"task {task}: its code is not here, and what checks its arguments without that is not installed: "
            "pip install 'taskmq[schemas]'"
        ) from error
    # Masked: a value may be secret, and as large as a message.
    return Draft202012Validator(schema, mask="the value", validate_formats=True, offline=True)


def _place(path: Sequence[str | int]) -> str:
    if not path:
        return ""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f" - at `{text.removeprefix('.')}`"
