"""What a workflow is, and what follows when one of its nodes ends. Pure.

graph_builder   from steps to nodes
calls           what a node carries, as the store keeps it
state_machine   which nodes start, end and are skipped when one ends; `rules` says when one may start
transitions     the same, on a store's view of one flow
"""
