"""Commands through the HTTP API of a server (`--server`) that know more at an app, and are written twice.

Each says so (`over_http`), and has a namesake here with the same parameters. All others are written once, against the
API of a server or of the app (`taskmq.cli.server_link.ask`).
"""
