"""The Lua scripts of the stores. Every change of the state is one script, so it happens whole or not at all."""
