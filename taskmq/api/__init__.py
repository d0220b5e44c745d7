"""Schemas of the HTTP API's requests and responses, shared by the server and its clients.

All are structs without behaviour. Requests (`...Body`) reject unknown fields. Responses (`...View`) may gain fields,
and clients ignore those they do not know. Timestamps are ISO 8601 strings in UTC with milliseconds.
"""
