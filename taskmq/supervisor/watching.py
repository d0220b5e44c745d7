"""Changes of Python files, for workers that reload."""

from collections.abc import AsyncIterator

__all__ = ["changes"]


async def changes(folders: tuple[str, ...]) -> AsyncIterator[set[str]]:
    """The changed files below `folders`, a moment after each change.

    Raises:
        OSError, RuntimeError: the system does not let them be watched.
    """
    # Only `--watch` needs it, and it is an extra.
    from watchfiles import PythonFilter, awatch  # pyright: ignore[reportUnknownVariableType] - of trio's, not there

    async for found in awatch(*folders, watch_filter=PythonFilter(), debounce=200, step=50):
        yield {path for _, path in found}
