"""Which taskmq this is: the distribution's metadata says the same, and takes 20 ms to read."""

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.1.0"
