"""The state of `local://`, and most stores of `memory://`: one module per store, on SQLite tables."""
