"""One call as it is sent and answered."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["SOME_ID", "Example"]

SOME_ID: Final = "0193a1f2-7c1e-7abc-8def-0123456789ab"
"""In the place of whatever the server makes ids for."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One call with its answers, shown in the description of the API.

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
