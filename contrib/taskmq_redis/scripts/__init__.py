"""The Lua scripts of the stores, a folder for each store and a file for each script.

Every change of the state is one script, so it happens whole or not at all. Instants are milliseconds by the server's
clock, unless they are a message's; those of limits are microseconds.

Redis refuses a command that adds when its memory is full, unless the script has written before. So what adds starts
with that command, and what only moves starts with the removal.
"""
