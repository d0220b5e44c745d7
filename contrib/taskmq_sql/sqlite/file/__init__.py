"""The file: its tables and their versions, connections, and the threads that have them.

A request is a function that is called with a `Transaction`, in a thread, and called again from the start where its
transaction could not be committed because others had locked the file: so it changes nothing but the file.
"""
