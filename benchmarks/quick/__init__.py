"""A quick guard: does one message cost more than it did at the last commit?

quick   runs the ways in turns, with the working tree and with the last commit, and compares
ways    what is measured, in a process of its own for each tree
player  a broker that plays, so that what is measured is taskmq alone
counter instructions where the machine counts them, else processor time
"""
