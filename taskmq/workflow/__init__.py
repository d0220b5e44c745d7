"""Workflows: calls that wait for others.

    steps, chains, groups, dags -> compile -> nodes -> a `FlowStore` -> messages, node by node

Every workflow is one graph, however it is written: nodes, the nodes before each one, and a rule that decides when it
starts. The graph is kept in the state; a message carries the name of its node and the node's own arguments. A worker
claims a node before it runs it, gets the values of the nodes before it, and reports its end with its value before its
delivery is settled. The same worker publishes the nodes that became ready, with confirms, before it acknowledges.

- A node's end counts once, however often it is reported: a run holds a token, and an older one is refused.
- After a crash anywhere the delivery is redelivered, to a node that has ended or has not: either way its new worker
  continues where the other stopped. Publishing twice does no harm: one run of a node starts at a time.
- No counter tracks missing nodes: the nodes that have arrived are a set.
- A node that can never start ends without a run, and notifies those after it, so every flow ends.
"""

__all__: list[str] = []
