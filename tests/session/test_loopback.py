"""A machine that cannot reach itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from command_line import COMMAND
from real_jobs import chain_folder

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="a network namespace takes root (CAP_SYS_ADMIN)"
)


@pytest.mark.parametrize("before", ["", "ip link set lo up; ip link set lo down;"])
def test_a_machine_whose_loopback_interface_is_down_is_told_so(tmp_path: Path, before: str) -> None:
    words = [*COMMAND, "run", str(chain_folder(tmp_path, 2))]
    shell = ["sh", "-c", f'{before} exec "$@"', "sh"]
    ended = subprocess.run(
        ["unshare", "--net", *shell, *words], capture_output=True, text=True, check=False
    )
    assert 1 == ended.returncode
    assert (
        "error: this machine: its loopback interface is down, which Open MPI needs; bring it up:"
        " sudo ip link set dev lo up" in " ".join(ended.stderr.split())
    )
