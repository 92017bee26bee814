"""Clients that break the protocols harm neither the server nor others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.ci
def test_a_server_answers_others_while_clients_send_rubbish() -> None:
    script = Path(__file__).with_name("clients.py")
    ended = subprocess.run(
        [sys.executable, script, "--seconds", "8"], capture_output=True, text=True, check=False
    )
    assert 0 == ended.returncode, ended.stdout[-4000:] + ended.stderr[-4000:]
