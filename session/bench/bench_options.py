"""How often and how long ``bench`` measures."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial

from rankslice.backend.runtime.options import Preprocessing, RunOptions
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.option_records import like, option
from rankslice.framework.wording import quoted
from rankslice.session.shared_options import Launching

LEVELS = (0.5, 0.8, 0.95)
"""Shares of the saturation throughput."""
BUSY = (0.25, 0.5, 0.75, 1.0)
"""Shares of the time in which a co-runner works."""
_MIN_SHARE = 1e-6
_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}


def _shares(name: str, text: str) -> tuple[float, ...]:
    try:
        shares = tuple(dict.fromkeys(float(part) / 100 for part in text.split(",")))
    except ValueError:
        shares = ()
    if not shares or not all(0 < share <= 1 for share in shares):
        found = f"{quoted(text)} is not a list of per cents above 0, up to 100"
        raise RankSliceError(Mistake(name, found, "expected a list such as 50,80,95"))
    return shares


def _levels(text: str) -> tuple[float, ...]:
    return () if text == "none" else _shares("--load-levels", text)


def _frequencies(text: str) -> tuple[float, ...]:
    parts = [
        re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([kMG])(?:Hz)?", part) for part in text.split(",")
    ]
    known = [float(part[1]) * _UNITS[part[2]] for part in parts if part is not None]
    if len(known) < len(parts):
        found = f"{quoted(text)} is not a list of frequencies with their units"
        raise RankSliceError(Mistake("--frequency", found, "expected a list such as 1.2G,1800M"))
    return tuple(dict.fromkeys(known))


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """How often and how long to measure."""

    starts: int = option(10, "Starts of each job under each load.", int, least=1, most=10_000)
    frames: int = option(300, "Frames of each start.", int, least=1)
    fps: float | None = option(
        None,
        "Frame rate, instead of --load-levels.",
        float,
        least=1e-3,
        most=1e9,
        excludes=("load_levels",),
    )
    """The rate at which frames come in the open loop; ``None``: at ``levels``."""
    levels: tuple[float, ...] = option(
        LEVELS,
        "Frame rates at which to measure the latency, in per cent of the saturation throughput;"
        " 'none': measure only the throughput.",
        _levels,
        name="load_levels",
        metavar="PERCENT,...",
        shown="50,80,95",
        least=_MIN_SHARE,
        most=1,
    )
    """Shares of the saturation throughput, from 0 to 1."""
    inputs: tuple[str, ...] = like(RunOptions, "inputs")
    seed: int = option(0, "Random seed of frames and of the order.", int, least=0)
    window: int | None = like(RunOptions, "window")
    load: str | None = option(
        None,
        "Measure beside a co-runner on each board instead: one that computes on the job's cores,"
        " copies memory, or sends over the loopback interface.",
        ("cpu", "memory", "network"),
        excludes=("against", "load_levels"),
    )
    """What a co-runner does beside the job, one of :data:`.co_runner.KINDS`; ``None``: there is
    none. Frames come at ``fps``, or as fast as they are taken."""
    busy: tuple[float, ...] = option(
        BUSY,
        "With --load: shares of the time in which the co-runner works; 0 is added.",
        partial(_shares, "--busy"),
        metavar="PERCENT,...",
        shown="25,50,75,100",
        least=_MIN_SHARE,
        most=1,
        needs="load",
    )
    """From 0 to 1; the job is measured alone, too."""
    frequency: tuple[float, ...] = option(
        (),
        "Measure at each of these clock frequencies instead, set on all boards of the job and"
        " restored afterwards (needs root).",
        _frequencies,
        metavar="1.2G,1800M,...",
        least=1e6,
        most=1e12,
        excludes=("against", "load_levels", "load"),
    )
    """In hertz. Frames come at ``fps``, or as fast as they are taken."""
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    frame_timeout_s: float | None = like(RunOptions, "frame_timeout_s")
    start_timeout_s: float | None = like(RunOptions, "start_timeout_s")
    launching: Launching = field(default_factory=Launching)

    @property
    def has_one_rate(self) -> bool:
        """Whether frames come in one way, and loads differ in something else."""
        return bool(self.load or self.frequency)

    @property
    def run_options(self) -> RunOptions:
        """What all starts have in common."""
        return RunOptions(
            inputs=self.inputs,
            frames=self.frames,
            seed=self.seed,
            window=self.window,
            preprocessing=self.preprocessing,
            frame_timeout_s=self.frame_timeout_s,
            start_timeout_s=self.start_timeout_s,
        )


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """How a job is measured under a scenario of MLPerf."""

    target_fps: float | None = option(
        None,
        "With --scenario server: mean rate of queries.",
        float,
        least=1e-3,
        most=1e9,
        needs="scenario",
    )
    latency_limit_ms: float | None = option(
        None,
        "With --scenario server: limit for the latency of 99 % of them.",
        float,
        least=1e-3,
        most=1e9,
        needs="scenario",
    )
