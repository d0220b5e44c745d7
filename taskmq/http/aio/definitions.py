"""Definitions of jobs, and the tasks they may call."""

from collections.abc import AsyncIterator, Sequence

from taskmq.api.definitions import DefinitionBody, DefinitionList, DefinitionVersions, DefinitionView
from taskmq.api.workers import (
    TaskList,
    TaskView,
)
from taskmq.http.aio.connection import AsyncCalls, every


class AsyncDefinitionCalls(AsyncCalls):
    """Definitions: named, versioned templates of jobs.

    Methods raise `DefinitionNotFound`, and `DefinitionConflict` if the version differs.
    """

    async def put(self, name: str, body: DefinitionBody, *, version: int | None = None) -> DefinitionView:
        """Create a version with this content, unless the latest one is identical.

        Args:
            version: the version that the latest one must have.
        """
        # Repeating the same content creates no version, so it is safe unless a version is required.
        is_free = version is None
        return await self._connection.ask(
            "putDefinition", DefinitionView, path={"name": name}, body=body, version=version, repeats=is_free
        )

    async def get(self, name: str, *, version: int | None = None) -> DefinitionView:
        """Return the latest version, or the given one, even of a deleted definition."""
        query = {"version": version}
        return await self._connection.ask("getDefinition", DefinitionView, path={"name": name}, query=query)

    async def versions(self, name: str, *, before: int | None = None, limit: int = 50) -> Sequence[DefinitionView]:
        """Return the versions below `before`, newest first."""
        query = {"before": before, "limit": limit}
        path = {"name": name}
        return (
            await self._connection.ask("listDefinitionVersions", DefinitionVersions, path=path, query=query)
        ).items

    async def delete(self, name: str, *, version: int | None = None) -> None:
        """Delete a definition. Its versions are kept."""
        await self._connection.ask("deleteDefinition", dict[str, str], path={"name": name}, version=version)

    async def page(self, prefix: str = "", *, limit: int = 50, cursor: str | None = None) -> DefinitionList:
        """Return a page of the definitions whose names have this prefix."""
        query = {"prefix": prefix, "limit": limit, "cursor": cursor}
        return await self._connection.ask("listDefinitions", DefinitionList, query=query)

    def list(self, prefix: str = "", *, page_size: int = 200) -> AsyncIterator[DefinitionView]:
        """Iterate over the latest version of each definition with this prefix, ordered by name."""
        return every(lambda cursor: self.page(prefix, limit=page_size, cursor=cursor))


class AsyncTaskCalls(AsyncCalls):
    """Tasks that can be called."""

    async def get(self, name: str) -> TaskView:
        """Return a task with the JSON Schema of its arguments; raises `UnknownTask` if there is none."""
        return await self._connection.ask("getTask", TaskView, path={"name": name})

    async def page(self, prefix: str = "", *, limit: int = 50, cursor: str | None = None) -> TaskList:
        """Return a page of the tasks whose names have this prefix."""
        query = {"prefix": prefix, "limit": limit, "cursor": cursor}
        return await self._connection.ask("listTasks", TaskList, query=query)

    def list(self, prefix: str = "", *, page_size: int = 200) -> AsyncIterator[TaskView]:
        """Iterate over the app's and registered tasks with this prefix, ordered by name."""
        return every(lambda cursor: self.page(prefix, limit=page_size, cursor=cursor))
