"""The API of an app without HTTP, for the server's handlers and for commands with access to the app.

Each resource is a class. Its methods have the same names as those of `taskmq.http.AsyncClient` and return the same
structs, so a program can use either. A method without a docstring is documented there.
"""
