"""The graph of a workflow in the syntax of Mermaid or Graphviz. Pure."""

import json
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

GraphFormat = Literal["mermaid", "dot"]
_COLOURS: Final = {"succeeded": "#2e7d32", "failed": "#c62828", "cancelled": "#757575", "running": "#1565c0"}


class GraphStep(NamedTuple):
    """A step and the names of the steps before it.

    Attributes:
        task: "" for a step that only waits for others.
    """

    name: str
    task: str
    state: str
    after: Sequence[str]


def format_graph(steps: Sequence[GraphStep], form: GraphFormat) -> str:
    """Return the graph, without a final newline."""
    ids = {step.name: f"s{number}" for number, step in enumerate(steps)}
    arrows = [(ids[before], ids[step.name]) for step in steps for before in step.after if before in ids]
    lines = _mermaid_lines if form == "mermaid" else _dot_lines
    return "\n".join(lines([(ids[step.name], step) for step in steps], arrows))


def _mermaid_lines(steps: list[tuple[str, GraphStep]], arrows: list[tuple[str, str]]) -> list[str]:
    # Mermaid interprets quotes, brackets and its own entities in labels.
    nodes = [f'  {key}["{"<br>".join(map(_escape_entities, _label(step)))}"]' for key, step in steps]
    styles = [
        f"  style {key} stroke:{_COLOURS[step.state]},stroke-width:2px"
        for key, step in steps
        if step.state in _COLOURS
    ]
    return [
        "flowchart LR",
        *nodes,
        *(f"  {before} --> {after}" for before, after in arrows),
        *styles,
    ]


def _dot_lines(steps: list[tuple[str, GraphStep]], arrows: list[tuple[str, str]]) -> list[str]:
    nodes = [
        f"  {key} [label={_quote_lines(_label(step))}, color={json.dumps(_COLOURS.get(step.state, '#424242'))}];"
        for key, step in steps
    ]
    return [
        "digraph workflow {",
        "  rankdir=LR;",
        "  node [shape=box];",
        *nodes,
        *(f"  {before} -> {after};" for before, after in arrows),
        "}",
    ]


def _label(step: GraphStep) -> list[str]:
    return [step.name, *([step.task] if step.task not in ("", step.name) else []), step.state]


def _escape_entities(text: str) -> str:
    return "".join(char if char.isalnum() or char in " _.:-" else f"#{ord(char)};" for char in text)


def _quote_lines(lines: list[str]) -> str:
    text = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines)
    return f'"{text}"'
