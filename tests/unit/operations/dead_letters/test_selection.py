"""Selection of dead letters."""

from datetime import timedelta
from typing import Any

import pytest

from taskmq.operations.dead_letters import LetterSelection
from tests.unit.operations.dead_letters.letters import NOW, letter

_HOUR = 3_600_000


def test_every_letter_is_selected_without_a_condition() -> None:
    assert LetterSelection().is_everything
    assert LetterSelection().at(NOW)(letter(died=None, reason="", error="", error_type=""))
    assert not LetterSelection(task="").is_everything


@pytest.mark.parametrize(
    ("condition", "is_meant"),
    [
        ({"task": "shop.resize"}, True),
        ({"task": "shop.res"}, False),
        ({"task": "shop.*"}, True),
        ({"task": "shop.resiz?"}, True),
        ({"task": "*.crop"}, False),
        ({"reason": "error"}, True),
        ({"reason": "err"}, False),
        ({"reason": "e*"}, True),
        ({"job": "job"}, True),
        ({"job": "jo"}, False),
        ({"job": "*"}, False),
        ({"tenant": "acme"}, True),
        ({"tenant": "acm*"}, False),
        ({"tenant": "globex"}, False),
        ({"tenant": ""}, False),
        ({"error": "TooDark"}, True),
        ({"error": "shop.errors.TooDark"}, True),
        ({"error": "no light"}, True),
        ({"error": "ValueError"}, False),
        ({"error": "shop.*"}, True),
        ({"error": "*.TooDark"}, True),
        ({"error": "*light"}, True),
        ({"error": "light*"}, False),
        ({"error": "[dark]"}, False),
        ({"fingerprint": letter().fingerprint}, True),
        ({"fingerprint": letter().fingerprint[:4].upper()}, True),
        ({"fingerprint": "nowhere"}, False),
        ({"older_than": timedelta(hours=1)}, True),
        ({"older_than": timedelta(hours=2)}, True),
        ({"older_than": timedelta(hours=2, milliseconds=1)}, False),
        ({"newer_than": timedelta(hours=2)}, True),
        ({"newer_than": timedelta(hours=1)}, False),
        ({"older_than": timedelta(hours=1), "newer_than": timedelta(hours=3)}, True),
        ({"task": "shop.*", "error": "ValueError"}, False),
    ],
)
def test_a_letter_is_selected_if_all_conditions_hold(condition: dict[str, Any], is_meant: bool) -> None:
    assert LetterSelection(**condition).at(NOW + 2 * _HOUR)(letter()) is is_meant


@pytest.mark.parametrize("condition", [{"older_than": timedelta(0)}, {"newer_than": timedelta(days=10_000)}])
def test_a_letter_without_a_time_of_death_is_never_selected_by_its_age(condition: dict[str, Any]) -> None:
    assert not LetterSelection(**condition).at(NOW)(letter(died=None))
