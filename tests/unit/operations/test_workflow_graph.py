"""The text of a workflow's graph."""

from taskmq.operations.workflow_graph import GraphStep, format_graph

_STEPS = [
    GraphStep("load", "shop.load", "succeeded", ()),
    GraphStep('resize "big"', "shop.resize", "running", ("load",)),
    GraphStep("resize.0", "shop.resize", "pending", ("load",)),
    GraphStep("all", "", "pending", ('resize "big"', "load", "forgotten")),
]


def test_a_markdown_graph_lists_steps_with_states_and_dependencies() -> None:
    assert format_graph(_STEPS, "mermaid").splitlines() == [
        "flowchart LR",
        '  s0["load<br>shop.load<br>succeeded"]',
        '  s1["resize #34;big#34;<br>shop.resize<br>running"]',
        '  s2["resize.0<br>shop.resize<br>pending"]',
        '  s3["all<br>pending"]',
        "  s0 --> s1",
        "  s0 --> s2",
        "  s1 --> s3",
        "  s0 --> s3",
        "  style s0 stroke:#2e7d32,stroke-width:2px",
        "  style s1 stroke:#1565c0,stroke-width:2px",
    ]


def test_a_graphviz_graph_quotes_names() -> None:
    lines = format_graph(_STEPS, "dot").splitlines()

    assert (lines[0], lines[-1]) == ("digraph workflow {", "}")
    assert '  s1 [label="resize \\"big\\"\\nshop.resize\\nrunning", color="#1565c0"];' in lines
    assert "  s0 -> s1;" in lines
