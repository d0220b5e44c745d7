"""Large values, stored outside of the state, which keeps only references."""

from typing import Protocol


class BlobStore(Protocol):
    """Values by name, each with its time to live. Belongs to one event loop; several processes share the values."""

    @property
    def address(self) -> str:
        """URL without its password."""
        ...

    async def put(self, label: str, data: bytes, *, ttl: float) -> str:
        """Store `data` for at least `ttl` seconds and return its name; it is durable when this returns.

        The same label and data again may have the same name.

        Raises:
            StateUnavailable: the store could not be reached, or is full.
        """
        ...

    async def get(self, name: str) -> bytes | None:
        """Return the data; None if there is none (any more).

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections. May be called twice."""
        ...
