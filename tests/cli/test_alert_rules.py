"""Alert rules in files."""

from typing import Any

import pytest

from taskmq.cli.history.rule_file import read_rules
from taskmq.errors import InvalidOption

_RULE = {"name": "charges-fail", "metric": "failure_rate", "threshold": 0.1}


def test_the_rules_of_a_file_are_read_in_order() -> None:
    rules = read_rules([_RULE, _RULE | {"name": "no-workers", "metric": "workers", "below": True}])

    assert [(rule.name, rule.metric, rule.below) for rule in rules] == [
        ("charges-fail", "failure_rate", False),
        ("no-workers", "workers", True),
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (_RULE | {"treshold": 1}, "there is no field 'treshold': did you mean 'threshold'?"),
        (_RULE | {"metric": "failure_rat"}, "there is no metric 'failure_rat': did you mean 'failure_rate'?"),
        (_RULE | {"threshold": "much"}, "Expected `float`, got `str` - at `$.threshold`"),
        ("charges-fail", "Expected `object`, got `str`"),
    ],
)
def test_an_invalid_rule_is_named_with_a_suggestion(value: Any, words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        read_rules([_RULE, value])

    assert str(caught.value) == f"rule 2 of the file: {words}"
