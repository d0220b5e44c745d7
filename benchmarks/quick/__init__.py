"""A quick check that a message does not cost more than at the last commit.

quick   runs the ways in turns with the working tree and the last commit, and compares them
ways    the measured ways, each run in a separate process
player  a fake broker, so that only taskmq is measured
counter instructions if the machine counts them, else processor time
"""
