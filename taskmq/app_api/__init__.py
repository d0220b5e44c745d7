"""The API of an app without HTTP: what each call does, for the server's handlers and for commands at the app.

Each resource is a class whose methods are named as those of `taskmq.http.AsyncClient`, and return the same structs: a
program that is written for one can be handed the other.
"""
