"""The SQLite file: tables and their versions, connections, and the threads that own them.

A request is a function of a `Transaction`, run in a thread. If its transaction cannot commit because other processes
locked the file, it runs again from the start; so it must change nothing but the file.
"""
