"""Text for logs and terminals without active characters: no moved cursor, no forged lines. Pure.

Clients choose job ids, error messages and names, and a log line is evidence. The characters below are escaped, so
that one record stays one line and a terminal shows text only:

- C0 and C1 controls and DEL: line ends, escape sequences, and their 8-bit forms;
- U+2028 and U+2029, at which many programs end a line;
- marks, embeddings and isolates of bidirectional text, which display a line in another order.
"""

from typing import Final

from taskmq.errors import InvalidOption

_BIDI: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ACTING: Final = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *_BIDI)
_WORDS: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LINE: Final = {
    code: _WORDS.get(chr(code), f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}") for code in _ACTING
}
_TEXT: Final = {code: escape for code, escape in _LINE.items() if chr(code) not in "\n\t"}
_JSON: Final = {code: f"\\u{code:04x}" for code in _ACTING if code >= 0x7F}
_INDENT: Final = "    "


def check_line(what: str, text: str) -> str:
    """Return `text`, the name of something, if it is one line without active characters.

    Raises:
        InvalidOption: it has a control character, a line end or a direction mark; the message names `what`.
    """
    if escape_line(text) != text:
        raise InvalidOption(
            f"{what}: {text[:80]!r} contains a control character, line break or direction mark, which would affect "
            "logs and terminals: remove it"
        )
    return text


def escape_line(text: str) -> str:
    """Escape `text` for one line, including line ends and tabs."""
    # Nearly all text is printable, and this check costs a tenth of the translation.
    return text if text.isprintable() else text.translate(_LINE)


def escape_controls(text: str) -> str:
    """Escape all active characters except line feeds and tabs."""
    return text if text.isprintable() else text.translate(_TEXT)


def escape_json(text: str) -> str:
    """Escape active characters in a JSON text, which keeps its meaning.

    Only JSON strings can contain such characters, and encoders escape those below U+0020 themselves.
    """
    return text.translate(_JSON)


def indent_lines(text: str) -> str:
    """Indent each line of a text that keeps its line ends, such as a traceback.

    Lines from an exception's message are indented like the others, so none of them can pass for a record.
    """
    return "\n".join(f"{_INDENT}{line}" for line in escape_controls(text).rstrip("\n").split("\n"))
