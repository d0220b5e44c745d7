"""The version of taskmq. The distribution's metadata has it too, but takes 20 ms to read."""

from typing import Final

VERSION: Final = "0.1.0"
