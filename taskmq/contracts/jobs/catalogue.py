"""Catalogue: definitions of jobs, and descriptions of tasks whose code is elsewhere.

Every method raises `StoreUnavailable` and `StoreMismatch` like those of `JobStore`. Names that no database can store
(with a NUL or a lone surrogate) are unknown.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from taskmq.model.jobs.definitions import Definition, DefinitionContent
from taskmq.model.jobs.registrations import Origin, RegisteredTask, TaskRegistration


class PutDefinition(msgspec.Struct, frozen=True):
    """The result of a `put`.

    Attributes:
        is_new: whether the call created this version; False: the last version has the same content.
    """

    definition: Definition
    is_new: bool


class DefinitionPage(msgspec.Struct, frozen=True):
    """A page of definitions, by name.

    Attributes:
        after: cursor of the next page; None on the last one.
    """

    definitions: list[Definition]
    after: str | None


class DefinitionStore(Protocol):
    """Definitions and all their versions."""

    async def put(
        self, tenant: str, name: str, content: DefinitionContent, *, version: int | None = None, by: str = ""
    ) -> PutDefinition | None:
        """Create a version with this content, unless the last one has the same content.

        A deleted definition is restored with the next version.

        Args:
            version: the version that the definition must have now; 0: it must not exist; None: any.

        Returns:
                    None if it has another version; nothing is changed then.
        """
        ...

    async def get(self, tenant: str, name: str, *, version: int | None = None) -> Definition | None:
        """Return the last version, or the given one; None if there is none.

        Versions of deleted ones are found by number.
        """
        ...

    async def page(
        self, tenant: str, *, prefix: str = "", after: str | None = None, limit: int = 50
    ) -> DefinitionPage:
        """Return up to `limit` of the tenant's definitions with the prefix, by code points, after `after`.

        Each in its last version; deleted ones are excluded.
        """
        ...

    async def versions(
        self, tenant: str, name: str, *, before: int | None = None, limit: int = 50
    ) -> list[Definition]:
        """Return up to `limit` versions below `before`, the last one first, even of a deleted definition."""
        ...

    async def delete(self, tenant: str, name: str, *, version: int | None = None) -> bool:
        """Hide the definition; return whether it existed. No job can be created from it any more; its versions stay.

        Args:
            version: the version that it must have now; with another version, nothing is changed and the result is
                False.
        """
        ...


class TaskStore(Protocol):
    """Descriptions of tasks. Names belong to the instance, not to a tenant."""

    async def register(self, registrations: Sequence[TaskRegistration], *, origin: Origin, worker: str = "") -> None:
        """Store the registrations in one transaction; known ones are marked as reported now.

        Registrations of any task that were not reported for 30 days are deleted.
        """
        ...

    async def registrations(self, tasks: Sequence[str]) -> list[RegisteredTask]:
        """Return all stored registrations of these tasks, in any order; `in_force` chooses the one that counts."""
        ...

    async def names(self, *, prefix: str = "", after: str | None = None, limit: int = 50) -> list[str]:
        """Return up to `limit` names of tasks with the prefix, by code points, after `after`."""
        ...


@runtime_checkable
class Catalogued(Protocol):
    """A job store with definitions, and descriptions of tasks."""

    @property
    def definitions(self) -> DefinitionStore: ...

    @property
    def tasks(self) -> TaskStore: ...
