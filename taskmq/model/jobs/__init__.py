"""Jobs of the store: what operators may do to them, what workers report of them, how they are looked for. Pure.

A job of the store is one row that decides. Whatever happens to it is a change from one state to another, which
`taskmq.model.states` allows, and which takes place only if the row is still in the state and version that the
decision was made for. These modules decide; stores compare and set.
"""
