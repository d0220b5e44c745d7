"""Runs of workflows, as the API shows and changes them.

runs       list, inspect, signal, close, cancel and redrive
timelines  the waits and attempts of steps
views      how runs, steps and children are shown
"""
