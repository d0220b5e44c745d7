"""The table of docs/lanes.md that says which feature needs which server."""

from collections.abc import Iterable
from typing import Final

from tests.features.feature import Feature
from tests.features.sent import BROKER_ALONE, NEEDING_STATE
from tests.features.stored import STORED

_NEEDED: Final = "needed"
_SHARED: Final = "needed; Redis decides if the app has it"


def feature_table() -> str:
    """Return each feature of both lanes with the servers that it needs."""
    lines = ["| feature | lane | RabbitMQ | Redis | PostgreSQL or SQLite |", "|---|---|---|---|---|"]
    lines += _rows("stored", STORED, redis="", store=_NEEDED)
    lines += _rows("sent", BROKER_ALONE, redis="", store="")
    lines += _rows("sent", NEEDING_STATE, redis=_NEEDED, store="")
    return "\n".join(lines)


def _rows(lane: str, features: Iterable[Feature], *, redis: str, store: str) -> Iterable[str]:
    for each in features:
        yield f"| {each.name} | {lane} | {_NEEDED} | {redis} | {_SHARED if each.is_shared else store} |"
