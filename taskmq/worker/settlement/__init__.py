"""From an outcome to its effects: what is stored, published or reported, and then acknowledged.

`settle` is the one place that settles a delivery: its own docstring has the table. Of a job of the store
`stored_jobs` reports the outcome instead, through the one `ReportSender` of the worker. `outcome_of_error` says what
an error means, `error_text` how it is written down, `records` how a job's end is. All of it waits by `patience`: for
a broker or a state that does not answer, until the worker stops.
"""
