"""Workflows as graphs, and the effects of a node's end. Pure.

graph_builder   from steps to nodes
calls           the contents of a node, as the store keeps it
flow_view       the view that the next two have of a stored flow, and their changes of it
state_machine   the nodes that start, end and are skipped when one ends; `rules` decides when one may start
transitions     the operations of a store of workflows, by these rules
"""
