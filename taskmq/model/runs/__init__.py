"""Runs of workflows whose steps are jobs of the store. Pure.

    content -> validation -> graph            a version is the hash of its content
    inbox row -> machine -> changes           new steps, jobs to submit, values, timers, ends

paths        references to parameters and values, alone and in templates
conditions   the language of `if`
rules        when a step starts, by the ends of its upstream steps
graphs       contents of workflows, and their edges
validation   faults of a content, each with its step and field
records      runs, steps and inbox rows as stores keep them
workspace    the part of a run that one transaction reads and writes
machine      effects of inbox rows, cut into transactions of at most 500 rows
ends         ends of steps, of their children and of the run
starts       starts of steps: arguments, jobs, waits, child runs
fan_out      children of `each` and of batches
redrives     steps that run again, under a new generation
"""
