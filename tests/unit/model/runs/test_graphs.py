import msgspec

from taskmq.model.runs.graphs import WorkflowContent, encode_workflow
from tests.unit.model.runs.run_kit import graph_of


def test_a_step_waits_for_the_steps_that_it_refers_to() -> None:
    graph = graph_of(
        {
            "pages": {"task": "t", "each": "${steps.extract.result}"},
            "extract": {"task": "t"},
            "merge": {"task": "t", "with": {"pages": "${steps.pages.result}"}, "if": "steps.extract.result.ok"},
        }
    )

    assert graph.order == ["extract", "pages", "merge"]
    assert graph.upstream == {"extract": (), "pages": ("extract",), "merge": ("pages", "extract")}
    assert graph.downstream == {"extract": ["pages", "merge"], "pages": ["merge"], "merge": []}
    assert graph.roots == ["extract"]


def test_needs_replace_the_references() -> None:
    graph = graph_of(
        {
            "a": {"task": "t"},
            "b": {"task": "t", "needs": ["a", "a"]},
            "c": {"task": "t", "needs": ["b"], "args": ["${steps.a.result}"]},
        }
    )

    assert graph.upstream["b"] == ("a",)
    assert graph.upstream["c"] == ("b",)
    assert graph.below("b") == {"b", "c"}


def test_equal_contents_have_equal_versions() -> None:
    one = _content({"steps": {"a": {"task": "t", "with": {"x": 1, "y": 2}}, "b": {"task": "u"}}})
    other = _content({"steps": {"b": {"task": "u"}, "a": {"with": {"y": 2, "x": 1}, "task": "t"}}})
    third = _content({"steps": {"b": {"task": "u"}, "a": {"with": {"y": 2, "x": True}, "task": "t"}}})

    assert encode_workflow(one) == encode_workflow(other)
    assert encode_workflow(one)[0] != encode_workflow(third)[0]


def test_the_kinds_of_steps_follow_from_their_fields() -> None:
    graph = graph_of(
        {
            "task": {"task": "t"},
            "each": {"task": "t", "each": []},
            "batch": {"batch": True},
            "wait": {"wait": "approval"},
            "sleep": {"sleep": 0},
            "workflow": {"workflow": "w"},
            "value": {"value": [1]},
        }
    )

    assert {name: graph.step(name).kind for name in graph.order} == {name: name for name in graph.order}
    assert [name for name in graph.order if graph.step(name).has_children] == ["batch", "each"]
    assert graph.waits == {"approval": ["wait"]}


def test_the_output_is_the_values_of_the_last_steps_unless_it_is_given() -> None:
    steps = {"a": {"task": "t"}, "b": {"task": "t", "needs": ["a"]}, "c": {"task": "t", "needs": ["a"]}}

    assert graph_of(steps).output() == {"b": "${steps.b.result}", "c": "${steps.c.result}"}
    assert graph_of(steps, output="${steps.a.result}").output() == "${steps.a.result}"


def _content(fields: object) -> WorkflowContent:
    return msgspec.convert(fields, WorkflowContent)
