"""What a workflow is, and what follows when one of its nodes ends. Pure.

graph_builder   from steps to nodes
calls           what a node carries, as the store keeps it
flow_view       what the next two see of a flow that is kept somewhere, and how they change it
state_machine   which nodes start, end and are skipped when one ends; `rules` says when one may start
transitions     what a store of workflows does to one, by these rules
"""
