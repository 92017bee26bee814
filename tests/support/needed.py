"""What some tests need of the machine: they are skipped, with a reason, where it is not there."""

from __future__ import annotations

import os
import shutil

import pytest

NEEDS_SSH = pytest.mark.skipif(
    shutil.which("ssh") is None, reason="needs an ssh client (Debian: openssh-client)"
)
NEEDS_RSYNC = pytest.mark.skipif(
    shutil.which("rsync") is None, reason="copies files to a board (Debian: rsync)"
)
NEEDS_FIRST_CORES = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="has ranks on CPUs 0 and 1, as the pages have"
)
