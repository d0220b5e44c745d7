"""Guards: checks that may hold a job back before it runs, and that learn its end.

A guard is asked before the run and answers with a permit, with a delay, or with an outcome that replaces the run. A
permit is released once the outcome is settled. `build` lists the guards of a worker in the order in which they are
asked.
"""
