"""Large values, kept beside the state: the state has a reference only."""

from typing import Protocol

from taskmq.model.envelope import BlobReference

__all__ = ["BlobReference", "BlobStore"]


class BlobStore(Protocol):
    """Values by name, each for its time. Belongs to one event loop; several processes share what is kept."""

    @property
    def address(self) -> str:
        """The URL without its password."""
        ...

    async def put(self, label: str, data: bytes, *, ttl: float) -> str:
        """Keep `data` for at least `ttl` seconds and give its name; it is durable when this returns.

        The same label and data again may have the same name.

        Raises:
            StateUnavailable: the store could not be reached, or is full.
        """
        ...

    async def get(self, name: str) -> bytes | None:
        """The data; None where there is none (any more).

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def aclose(self) -> None:
        """Let go. May be called twice."""
        ...
