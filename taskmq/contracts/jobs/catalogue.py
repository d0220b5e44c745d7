"""What jobs are made from: definitions, and what is known of tasks whose code is elsewhere.

Every method raises `StoreUnavailable` and `StoreMismatch` as those of `JobStore` do. Names that no database can hold
(with a NUL or a lone surrogate) are unknown ones.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from taskmq.model.jobs.definitions import Definition, DefinitionContent
from taskmq.model.jobs.registrations import Origin, RegisteredTask, TaskRegistration

__all__ = ["Catalogued", "DefinitionPage", "DefinitionStore", "PutDefinition", "TaskStore"]


class PutDefinition(msgspec.Struct, frozen=True):
    """What became of a `put`.

    Attributes:
        is_new: the call has made this version; False: the last version has the same content.
    """

    definition: Definition
    is_new: bool


class DefinitionPage(msgspec.Struct, frozen=True):
    """Some definitions, by their names.

    Attributes:
        after: where the next page begins; None where there is none.
    """

    definitions: list[Definition]
    after: str | None


class DefinitionStore(Protocol):
    """Definitions and all their versions."""

    async def put(
        self, tenant: str, name: str, content: DefinitionContent, *, version: int | None = None, by: str = ""
    ) -> PutDefinition | None:
        """Make a version with this content, unless the last one has the same.

        A definition that was deleted comes back, with the next version.

        Args:
            version: the version that the definition must have now; 0: it must not exist; None: any.

        Returns:
            None where it has another version; nothing is changed then.
        """
        ...

    async def get(self, tenant: str, name: str, *, version: int | None = None) -> Definition | None:
        """The last version, or this one; None where there is none. Versions of a deleted one are found by number."""
        ...

    async def page(
        self, tenant: str, *, prefix: str = "", after: str | None = None, limit: int = 50
    ) -> DefinitionPage:
        """Up to `limit` of the tenant's definitions whose names begin so, by code points, from behind `after`.

        Each in its last version; deleted ones are left out.
        """
        ...

    async def versions(
        self, tenant: str, name: str, *, before: int | None = None, limit: int = 50
    ) -> list[Definition]:
        """Up to `limit` of its versions below `before`, the last one first; of a deleted one, too."""
        ...

    async def delete(self, tenant: str, name: str, *, version: int | None = None) -> bool:
        """Hide the definition and return whether it was there: no job is made from it any more, its versions stay.

        Args:
            version: the version that it must have now; where it has another one, nothing is changed, and the
                answer is False.
        """
        ...


class TaskStore(Protocol):
    """What is known of tasks. Names are those of the instance: they belong to no tenant."""

    async def register(self, registrations: Sequence[TaskRegistration], *, origin: Origin, worker: str = "") -> None:
        """Keep all of them, in one transaction; those that were reported before are marked as reported now.

        Registrations of any task that were not reported for 30 days are deleted.
        """
        ...

    async def registrations(self, tasks: Sequence[str]) -> list[RegisteredTask]:
        """All registrations that are kept of these tasks, in any order; `in_force` says which of them counts."""
        ...

    async def names(self, *, prefix: str = "", after: str | None = None, limit: int = 50) -> list[str]:
        """Up to `limit` names of tasks that begin so, by code points, from behind `after`."""
        ...


@runtime_checkable
class Catalogued(Protocol):
    """A job store that keeps definitions, and what is known of tasks."""

    @property
    def definitions(self) -> DefinitionStore: ...

    @property
    def tasks(self) -> TaskStore: ...
