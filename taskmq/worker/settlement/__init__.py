"""Settlement: turns an outcome into effects, which are stored, published or reported, and then acknowledges.

`settle` is the one place that settles a delivery: its docstring has the table. For stored jobs, `stored_jobs` reports
the outcome instead, through the one `ReportSender` of the worker. `outcome_of_error` maps an error to an outcome,
`error_text` formats it, `records` creates the record of a job's end. `patience` limits all waits: for a broker or a
state that does not answer, until the worker stops.
"""
