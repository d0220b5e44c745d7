"""SVG plots without a library: lines over time, and bars."""

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

_COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#6c567b", "#2e4057")
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 300, 170, 44, 44, 36

Line = Sequence[tuple[float, float]]


def lines(title: str, panels: Mapping[str, Mapping[str, Line]], *, unit: str, top: float, along: str = "s") -> str:
    """Draw the panels side by side, each with a line for each name, and return the SVG text.

    Args:
        top: the largest value of the vertical axis.
        along: the unit of the horizontal axis.
    """
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    parts = _begin(title, len(panels) * (_WIDTH + _GAP) + _LEFT, _TOP + _HEIGHT + 62)
    for number, (panel, found) in enumerate(panels.items()):
        left = _LEFT + number * (_WIDTH + _GAP)
        last = max((line[-1][0] for line in found.values() if line), default=1.0)
        parts.append(_text(left, _TOP - 6, panel, weight="bold"))
        for part in (0.0, 0.5, 1.0):
            y = _TOP + _HEIGHT * (1 - part)
            parts.append(f'<path d="M{left} {y:.1f}h{_WIDTH}" stroke="#ddd"/>')
            if number == 0:
                parts.append(_text(left - 6, y + 4, f"{top * part:g}", anchor="end"))
        parts.append(_text(left + _WIDTH, _TOP + _HEIGHT + 15, f"{last:g} {along}", anchor="end"))
        for name, line in found.items():
            points = " ".join(
                f"{left + at / last * _WIDTH:.1f},{_TOP + _HEIGHT * (1 - min(value / top, 1.0)):.1f}"
                for at, value in _thinned(line)
            )
            colour = _COLOURS[names.index(name) % len(_COLOURS)]
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
    parts += _legend([*names], _TOP + _HEIGHT + 40)
    parts.append(_text(_LEFT, _TOP - 24, unit))
    return "\n".join([*parts, "</svg>", ""])


def bars(title: str, rows: Mapping[str, float], *, unit: str) -> str:
    """Draw a bar for each name and return the SVG text."""
    left, step = 190, 24
    most = max(rows.values(), default=1.0) or 1.0
    parts = _begin(title, left + 460, 44 + step * len(rows))
    for number, (name, value) in enumerate(rows.items()):
        y = 36 + number * step
        parts.append(_text(left - 8, y + 13, name, anchor="end"))
        colour = _COLOURS[0] if name.startswith("taskmq") else "#9aa5b1"
        parts.append(
            f'<rect x="{left}" y="{y}" width="{max(value / most * 320, 1):.1f}" height="17" fill="{colour}"/>'
        )
        parts.append(_text(left + max(value / most * 320, 1) + 6, y + 13, f"{value:.3g} {unit}"))
    return "\n".join([*parts, "</svg>", ""])


def _begin(title: str, width: int, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(8, 16, title, weight="bold"),
    ]


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="12" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )


def _legend(names: Sequence[str], y: float) -> list[str]:
    parts: list[str] = []
    x = float(_LEFT)
    for number, name in enumerate(names):
        parts.append(f'<rect x="{x:.0f}" y="{y - 10:.0f}" width="12" height="12" fill="{_COLOURS[number % 6]}"/>')
        parts.append(_text(x + 17, y, name))
        x += 34 + 7 * len(name)
    return parts


def _thinned(line: Line) -> Line:
    return line[:: max(len(line) // 150, 1)]
