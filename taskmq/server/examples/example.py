"""One call as it is sent and answered."""

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["Example"]


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One call.

    Attributes:
        body: that is sent.
        parameters: of path and query, by name.
        answers: by status.
        media_type: of the answers.
    """

    answers: Mapping[int, Any]
    body: Any = None
    parameters: Mapping[str, Any] = {}
    media_type: str = "application/json"
