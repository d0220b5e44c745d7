"""People with colour blindness can distinguish the colours of states; words and icons repeat them."""

import itertools
import math
import re
from collections.abc import Sequence
from typing import Final

import pytest

from tests.docs.blocks import ROOT

_STYLE: Final = ROOT / "taskmq" / "server" / "dashboard" / "static" / "tokens.css"
_STATES: Final = ("good", "bad", "warn", "cool", "odd", "run")
_FILLS: Final = ("wash", "bad-fill", "warn-fill", "odd-fill", "run-fill", "control-edge")
# Differences of CIEDE2000: 10 is visible at a glance.
_APART: Final = 10.0
_READABLE: Final = 4.5
_VISIBLE: Final = 3.0
# Vision without one kind of cones, in linear light: G. M. Machado and others, 2009.
_EYES: Final = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red cones": (
        (0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998),
    ),
    "no green cones": (
        (0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881),
    ),
    "no blue cones": (
        (1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039),
    ),
}  # fmt: skip
_TO_XYZ: Final = (
    (0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.715152, 0.072175), (0.0193339, 0.119192, 0.9503041),
)  # fmt: skip
_WHITE: Final = (0.95047, 1.0, 1.08883)


@pytest.mark.parametrize("theme", ["light", "dark", "contrast"])
@pytest.mark.parametrize("eyes", list(_EYES))
def test_the_colours_of_states_are_distinguishable(theme: str, eyes: str) -> None:
    seen = {name: _lab(_times(_EYES[eyes], _linear(_colours(theme)[name]))) for name in _STATES}

    near = {
        (one, other): round(_difference(seen[one], seen[other]), 1)
        for one, other in itertools.combinations(_STATES, 2)
        if _difference(seen[one], seen[other]) < _APART
    }
    assert near == {}


@pytest.mark.parametrize("theme", ["light", "dark", "contrast"])
def test_the_colours_of_states_are_readable_on_all_their_backgrounds(theme: str) -> None:
    colours = _colours(theme)

    contrasts = {
        (name, ground): _contrast(colours[name], colours[ground])
        for name in _STATES
        for ground in (f"{name}-ground", "card", "ground")
    }
    assert {pair: found for pair, found in contrasts.items() if found < _READABLE} == {}


@pytest.mark.parametrize("theme", ["light", "dark", "contrast"])
def test_the_fills_of_steps_are_visible_on_their_backgrounds(theme: str) -> None:
    colours = _colours(theme)

    contrasts = {
        (name, ground): _contrast(colours[name], colours[ground]) for name in _FILLS for ground in ("card", "chosen")
    }
    assert {pair: found for pair, found in contrasts.items() if found < _VISIBLE} == {}


def test_the_dark_theme_is_the_same_by_choice_and_by_the_system() -> None:
    by_system = re.search(r"not\(\[data-theme=\"contrast\"\]\) \{(.*?)\}", _STYLE.read_text(), re.DOTALL)

    assert by_system is not None
    assert dict(_named_colours(by_system[1])) == _colours("dark")


def _colours(theme: str) -> dict[str, str]:
    found = re.search(rf'\[data-theme="{theme}"\] \{{(.*?)\}}', _STYLE.read_text(), re.DOTALL)
    assert found is not None
    return dict(_named_colours(found[1]))


def _named_colours(block: str) -> list[tuple[str, str]]:
    return re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6});", block)


def _linear(colour: str) -> list[float]:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    values = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]


def _times(matrix: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    return [min(max(sum(part * value for part, value in zip(row, values, strict=True)), 0), 1.1) for row in matrix]


def _contrast(one: str, other: str) -> float:
    """Return the contrast defined by WCAG."""
    low, high = sorted(_times(_TO_XYZ, _linear(colour))[1] for colour in (one, other))
    return round((high + 0.05) / (low + 0.05), 2)


def _lab(linear: Sequence[float]) -> tuple[float, float, float]:
    def cube(value: float) -> float:
        return value ** (1 / 3) if value > 216 / 24389 else (24389 / 27 * value + 16) / 116

    x, y, z = (cube(value / white) for value, white in zip(_times(_TO_XYZ, linear), _WHITE, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _difference(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """Return the difference defined by CIEDE2000."""
    chroma = sum(math.hypot(*colour[1:]) for colour in (one, other)) / 2
    grey = 1 + 0.5 * (1 - math.sqrt(chroma**7 / (chroma**7 + 25**7)))
    chromas = [math.hypot(colour[1] * grey, colour[2]) for colour in (one, other)]
    hues = [math.degrees(math.atan2(colour[2], colour[1] * grey)) % 360 for colour in (one, other)]
    turn = (hues[1] - hues[0] + 180) % 360 - 180
    light, chroma = (one[0] + other[0]) / 2, sum(chromas) / 2
    hue = math.radians((hues[0] + turn / 2) % 360)
    by_light = (other[0] - one[0]) / (1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2))
    by_chroma = (chromas[1] - chromas[0]) / (1 + 0.045 * chroma)
    tint = 1 - 0.17 * math.cos(hue - math.radians(30)) + 0.24 * math.cos(2 * hue)
    tint += 0.32 * math.cos(3 * hue + math.radians(6)) - 0.2 * math.cos(4 * hue - math.radians(63))
    by_hue = 2 * math.sqrt(math.prod(chromas)) * math.sin(math.radians(turn / 2)) / (1 + 0.015 * chroma * tint)
    bend = math.radians(60 * math.exp(-(((math.degrees(hue) - 275) / 25) ** 2)))
    twist = -2 * math.sqrt(chroma**7 / (chroma**7 + 25**7)) * math.sin(bend)
    return math.sqrt(by_light**2 + by_chroma**2 + by_hue**2 + twist * by_chroma * by_hue)
