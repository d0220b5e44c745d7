"""The Lua scripts of the stores: a folder per store and a file per script.

Every change of the state is one script, so it is atomic. Instants are milliseconds by the server's clock, except
those of messages; those of limits are microseconds.

When its memory is full, Redis refuses a command that adds data, unless the script has written before. So scripts that
add data start with that command, and scripts that only move data start with the removal.
"""
