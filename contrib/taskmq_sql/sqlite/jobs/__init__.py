"""Operations on jobs; each is one function of a transaction.

One process writes at a time and sees everything committed before. So a job can be read, decided upon in Python and
written without interference. Jobs are still read and written by the hundred.
"""
