"""What goes over HTTP: the schemas of the API's requests and answers, shared by the server and its clients.

Structs without behaviour. Requests (`...Body`) refuse fields that they do not know; answers (`...View`) may get more
fields, and a client ignores those that it does not know. Instants are texts, ISO 8601 in UTC with milliseconds.
"""
