"""Commands through the HTTP API of a server (`--server`): no app, no broker and no store is needed.

A command that can go both ways says so (`over_http`), and has a namesake here with the same parameters. Tables and
exit codes are the same; `-o json` prints what the API answers.
"""
