"""The example of one API operation."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

SOME_ID: Final = "0193a1f2-7c1e-7abc-8def-0123456789ab"
"""A sample id, in place of ids the server generates."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its responses, shown in the API's description.

    Attributes:
        parameters: path and query parameters, by name.
        answers: response bodies, by status.
    """

    answers: Mapping[int, Any]
    body: Any = None
    parameters: Mapping[str, Any] = {}
    media_type: str = "application/json"
