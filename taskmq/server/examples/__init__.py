"""An example for every call of the API; the tests send those that can be sent as they are."""

from collections.abc import Mapping
from typing import Final

from taskmq.server.examples.bulks import BULKS
from taskmq.server.examples.calls import CALLS
from taskmq.server.examples.example import Example
from taskmq.server.examples.history import HISTORY
from taskmq.server.examples.nodes import NODES

__all__ = ["EXAMPLES", "Example"]

EXAMPLES: Final[Mapping[str, Example]] = {**CALLS, **BULKS, **HISTORY, **NODES}
