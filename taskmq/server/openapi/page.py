"""The API's description as an HTML page: operations by tag, with parameters, examples and permissions.

The page has no scripts, and its only style is allowed by hash, so it works without network access.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem;color-scheme:light dark}"
    "code,pre{font:14px/1.4 ui-monospace,monospace}"
    "pre{overflow:auto;padding:.75rem;border:1px solid;border-radius:4px}"
    "table{border-collapse:collapse}td,th{text-align:left;padding:.25rem .75rem .25rem 0;vertical-align:top}"
    "section{border-top:1px solid;margin-top:2rem}nav ul{columns:2 20rem}"
)
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
"""The page's content security policy."""


def page_of(document: Mapping[str, Any]) -> bytes:
    """Render the page as HTML.

    Args:
        document: the OpenAPI 3.1 document.
    """
    calls: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            calls.setdefault(call.get("tags", ["other"])[0], []).append((method.upper(), path, call))
    info = document["info"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{_text(info['title'])} API</title><style>{_STYLE}</style></head><body>",
        f"<h1>{_text(info['title'])} {_text(info['version'])}</h1><p>{_prose(info['description'])}</p>",
        '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>',
        *_contents(calls),
        *(part for name in sorted(calls) for part in _about(name, calls[name], document)),
        "</body></html>",
    ]
    return "".join(parts).encode()


def _contents(calls: Mapping[str, list[tuple[str, str, Mapping[str, Any]]]]) -> Iterator[str]:
    yield '<nav aria-label="Operations">'
    for name in sorted(calls):
        yield f"<h2>{_text(name)}</h2><ul>"
        for method, path, call in calls[name]:
            yield f'<li><a href="#{_text(call["operationId"])}"><code>{method} {_text(path)}</code></a></li>'
        yield "</ul>"
    yield "</nav>"


def _about(name: str, calls: list[tuple[str, str, Mapping[str, Any]]], document: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2>{_text(name)}</h2>"
    for method, path, call in calls:
        yield f'<section id="{_text(call["operationId"])}"><h3><code>{method} {_text(path)}</code></h3>'
        yield f"<p><strong>{_text(call.get('summary', ''))}</strong></p><p>{_prose(call.get('description', ''))}</p>"
        yield from _parameters(call.get("parameters", ()))
        body = call.get("requestBody", {}).get("content", {})
        yield from _examples("Body", body)
        for status, answer in call["responses"].items():
            found = _resolve(answer, document)
            yield from _examples(f"Response {status}", found.get("content", {}))
        yield "</section>"


def _parameters(parameters: Any) -> Iterator[str]:
    if not parameters:
        return
    yield "<table><thead><tr><th>Parameter</th><th>In</th><th></th><th>Description</th></tr></thead><tbody>"
    for one in parameters:
        needed = "required" if one.get("required") else ""
        example = "" if "example" not in one else f"<code>{_text(one['example'])}</code>"
        yield (
            f"<tr><td><code>{_text(one['name'])}</code></td><td>{_text(one['in'])}</td><td>{needed}</td>"
            f"<td>{example} {_prose(one.get('description', ''))}</td></tr>"
        )
    yield "</tbody></table>"


def _examples(title: str, content: Mapping[str, Any]) -> Iterator[str]:
    for kind, described in content.items():
        if "example" in described:
            example = described["example"]
            text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
            yield f"<h4>{_text(title)} <code>{_text(kind)}</code></h4><pre>{_text(text)}</pre>"


def _resolve(found: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    if (pointer := found.get("$ref")) is None:
        return found
    for name in str(pointer).removeprefix("#/").split("/"):
        document = document[name]
    return document


def _prose(text: str) -> str:
    """Render the paragraphs and code of a docstring."""
    pieces = _text(text).split("`")
    marked = "".join(f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces))
    return marked.replace("\n\n", "</p><p>")


def _text(value: object) -> str:
    return escape(str(value))
