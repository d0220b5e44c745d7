"""Workflows: calls that wait for others.

    steps, chains, groups, dags -> compile -> nodes -> a `FlowStore` -> messages, node by node

However it was written down, a workflow is one graph: nodes, the nodes before each one, and a rule that says when it
starts. The graph is kept in the state; a message carries the name of its node and the node's own arguments. A worker
asks for a node before it runs it, gets what the nodes before it have returned, and reports its end, with what it came
to, before its delivery is settled. What became ready by that is published by the same worker, with confirms, before
it acknowledges.

- A node's end counts once, however often it is reported: a run holds a token, and an older one is refused.
- A crash anywhere leaves a delivery that comes again, to a node that has ended or has not: either way the worker that
  gets it goes on where the other stopped. Publishing twice does no harm: one run of a node begins at a time.
- No counter says how many are missing: who has arrived at a node is a set.
- A node that can never start ends without a run, and those after it hear of it, so every flow ends.
"""

__all__: list[str] = []
