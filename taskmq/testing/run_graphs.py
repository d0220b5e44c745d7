"""Random contents of workflows, with every kind of step and every rule."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from taskmq.model.runs.rules import RULE_NAMES

PARAMS: Final[dict[str, Any]] = {"n": {}, "list": {}}
"""Schemas of the parameters that random steps refer to."""

_THRESHOLDS: Final = ("one_success", "one_failed", "one_done", "at_least")


def random_params(random: Random) -> dict[str, Any]:
    """Return values of the parameters that random steps refer to."""
    return {"n": random.randint(0, 3), "list": [*range(random.randint(0, 4))]}


def random_value(random: Random) -> Any:
    """Return a value of a step."""
    return random.choice((0, 1, 2.5, "text", None, True, [], [1, "a"], [{"x": 1}], {"x": 2}))


def random_steps(random: Random, size: int, *, sleeps: Sequence[Any], timeouts: Sequence[Any]) -> dict[str, Any]:
    """Return the steps of a valid content, from `s0` on; steps of kind `workflow` run `w`.

    Args:
        sleeps, timeouts: values of `sleep`, and of `timeout` of a wait.
    """
    steps: dict[str, Any] = {}
    for number in range(size):
        name = f"s{number}"
        steps[name] = _random_step(random, name, [*steps])
        if "sleep" in steps[name]:
            steps[name]["sleep"] = random.choice(sleeps)
        elif "wait" in steps[name]:
            steps[name]["timeout"] = random.choice(timeouts)
    return steps


def _random_step(random: Random, name: str, earlier: list[str]) -> dict[str, Any]:
    step: dict[str, Any] = {}
    kind = random.choice(("task", "task", "task", "each", "wait", "sleep", "workflow", "batch", "value"))
    if kind == "batch":
        return {"batch": True, "limit": random.choice((0, 2)), "may_fail": random.random() < 0.5}
    near = earlier[-12:]
    needs = random.sample(near, min(len(near), random.randint(0, 4)))
    rules: list[Any] = [rule for rule in RULE_NAMES if rule != "at_least"] if needs else ["all_success", "all_done"]
    rule = random.choice((*rules, *["all_success"] * 8))
    if needs and random.random() < 0.1:
        rule = {"at_least": random.randint(1, len(needs))}
    step |= {"needs": needs, "rule": rule, "may_fail": random.random() < 0.5}
    # A step that starts before others have ended would see them or not, by the order of transactions.
    is_early = isinstance(rule, dict) or rule in _THRESHOLDS
    sources = [] if is_early else [f"steps.{each}.result" for each in needs]
    paths = ["params.n", *sources]
    if random.random() < 0.3:
        state = [] if is_early or not needs else [f'steps.{needs[0]}.state == "succeeded"']
        step["if"] = random.choice(
            (f"not {random.choice(paths)}", f"{random.choice(paths)} != 1", "params.n < 3", *state)
        )
    value = {"a": f"${{{random.choice(paths)}}}", "b": [f"n is ${{{random.choice(paths)}}}!"]}
    match kind:
        case "task":
            step |= {"task": "t", "with": value, "args": [random.choice(("${params.n}", 1, "$${x}"))]}
            if sources and random.random() < 0.1:
                step["with"] = {"deep": f"${{{random.choice(sources)}[0].x}}"}
        case "each":
            source = random.choice((["${params.n}", 2, {"x": 3}], "${params.list}", f"${{{random.choice(paths)}}}"))
            step |= {"task": "t", "each": source, "limit": random.choice((0, 0, 1, 2))}
            step |= random.choice(({}, {"with": value}, {"args": ["${item}"]}, {"with": {"x": "${item.x}"}}))
        case "wait":
            on_timeout = random.choice(("fail", "skip", {"value": 5}))
            step |= {"wait": f"go-{name}", "on_timeout": on_timeout}
            step["roles"] = random.choice(([], ["finance"]))
        case "sleep":
            step["sleep"] = 0
        case "value":
            step["value"] = value
        case _:
            step |= {"workflow": "w", "with": value}
    return step
