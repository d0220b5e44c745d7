"""The API's description, for programs and for people.

description  OpenAPI 3.1 at `/api/openapi.json`: Litestar's document, with examples, permissions and errors
page         the same at `/api/docs`, as one page without scripts and external resources
"""

from taskmq.server.openapi.description import OPENAPI, OPENAPI_HANDLERS

__all__ = ["OPENAPI", "OPENAPI_HANDLERS"]
