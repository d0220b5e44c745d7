"""Tests that send signals pass in a session that ignores them."""

import json
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_ASKED = "import json, signal; print(json.dumps([signal.getsignal(each) is signal.SIG_IGN for each in (1, 2, 3)]))"
_SESSION = f"""
import signal, subprocess, sys
from tests.ignored_signals import hide_from_children
for each in (1, 2, 3):
    signal.signal(each, signal.SIG_IGN)
hide_from_children()
for each in (1, 2, 3):
    signal.raise_signal(each)
sys.stdout.write(subprocess.check_output([sys.executable, "-c", {_ASKED!r}], text=True))
"""


def test_a_process_of_a_session_under_nohup_receives_its_signals() -> None:
    answer = subprocess.check_output([sys.executable, "-c", _SESSION], cwd=_ROOT, text=True)

    assert json.loads(answer) == [False, False, False]
