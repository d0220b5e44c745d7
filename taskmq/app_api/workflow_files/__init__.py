"""Files of workflows, in YAML or JSON.

    text -> document -> words of the file -> content of `taskmq.model.runs`

documents    values of a text, with the line of each; YAML without tags, anchors and aliases
reader       content of a file; faults with line, step and field
schedules    the schedule of a file, which follows the current version
call_checks  whether tasks exist and accept their arguments
json_schema  the schema of a file, for editors
"""
