"""A reference to a value that is kept elsewhere."""

import msgspec

__all__ = ["BlobReference"]


class BlobReference(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value is, and how to tell that it is still the same.

    Attributes:
        name: in the store.
        size: bytes.
        sha256: of the bytes, as hexadecimal digits.
    """

    name: str
    size: int
    sha256: str
