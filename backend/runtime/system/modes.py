"""A board's mode: its power mode, and what sets the clocks of its cores and GPUs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .cores import CORES
from .files import ROOT, number_in, paths_below, text_of

MAX_CLOCKS = 64
POWER_MODE = re.compile(r"NV Power Mode:[ \t]*(\S[^\n]*)\n(?:.*\n)*?(\d{1,9})\s*$")
ANSWER_S = 5
GPU = re.compile("gpu|kgsl|mali|g[ap]10b|gv11b")
"""Part of the names of GPUs among the devices of devfreq."""


@dataclass(frozen=True)
class ClockMode:
    """What sets a clock: one that cores share, or a GPU's."""

    name: str
    """As the system names it: ``policy0``, ``17000000.gpu``."""
    governor: str
    min_mhz: float | None
    """Its limits; ``None``: the system does not tell."""
    max_mhz: float | None


@dataclass(frozen=True)
class BoardMode:
    power: str = ""
    """Name of the power mode of a Jetson board; empty: the board has none, or does not tell."""
    power_number: int | None = None
    clocks: tuple[ClockMode, ...] = ()


def board_mode(root: Path = ROOT, *, nvpmodel: str = "nvpmodel") -> BoardMode:
    """Ask for this board's mode; ``root``: under which Linux shows ``sys``."""
    cores = paths_below(root, f"{CORES}/cpufreq/policy*")
    devices = paths_below(root, "sys/class/devfreq/*")
    gpus = [path for path in devices if GPU.search(path.name)]
    clocks = [clock_mode(path, "scaling_{}_freq", 1e-3) for path in cores]
    clocks += [clock_mode(path, "{}_freq", 1e-6) for path in gpus]
    return BoardMode(*power_mode(nvpmodel), tuple(clocks[:MAX_CLOCKS]))


def clock_mode(path: Path, limit: str, unit_mhz: float) -> ClockMode:
    limits = [number_in(path / limit.format(end)) for end in ("min", "max")]
    low, high = (None if value is None else value * unit_mhz for value in limits)
    governor = text_of(path / "scaling_governor") or text_of(path / "governor")
    return ClockMode(path.name, governor, low, high)


def power_mode(nvpmodel: str) -> tuple[str, int | None]:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        # The path of programs that ssh sets may lack the folder where it is.
        program = shutil.which(nvpmodel, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        nothing = subprocess.DEVNULL
        answer = subprocess.run(
            [program or nvpmodel, "-q"],
            stdin=nothing,
            stdout=subprocess.PIPE,
            stderr=nothing,
            timeout=ANSWER_S,
            check=False,
        )
        match = POWER_MODE.search(answer.stdout.decode(errors="replace"))
        if match is not None:
            return match[1].strip(), int(match[2])
    return "", None
