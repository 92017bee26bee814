"""``rankslice bench --loadgen``: MLPerf's own load generator drives a job."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from platform import machine

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.launch.job import tethered
from rankslice.backend.runtime.errors import signal_name
from rankslice.backend.runtime.options import Preprocessing
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.new_folder import new_folder, what_forbids
from rankslice.framework.files.ordinary_file import read_text
from rankslice.measurement.bench.loadgen_log import MISSING, LoadgenTest, figures_of_log
from rankslice.measurement.bench.scenarios import figures_of
from rankslice.session.bench.scenario import ScenarioRequest

SCENARIO_NAMES = {
    "single": "SingleStream",
    "multi": "MultiStream",
    "server": "Server",
    "offline": "Offline",
}
"""The generator's names of scenarios, by ours."""

_COMPILE = (
    "its wheels are for x86-64 only; pip install mlcommons-loadgen compiles it, with g++ and the"
    " headers of Python"
)
_CHILD = "rankslice.commands.bench.loadgen_process"
_DETAIL = "mlperf_log_detail.txt"
_LARGEST_LOG = 1 << 28
_END_S = 10.0


@dataclass(frozen=True, slots=True)
class LoadgenSettings:
    """What the process of the generator is told."""

    folder: str
    scenario: str
    queries: int
    """At least; for ``offline``: frames."""
    samples: int
    """Frames of a query."""
    inputs: tuple[str, ...]
    seed: int
    target_fps: float | None
    limit_s: float | None
    window: int | None
    exact: bool
    start_timeout_s: float | None
    frame_timeout_s: float | None
    mpirun: str
    """Empty: the one of this environment."""
    ssh_config: str
    """Empty: ssh's own."""
    logs: str
    """Folder for the generator's log."""
    preprocessing: Preprocessing = field(default_factory=Preprocessing)


def check_loadgen(logs: Path | None) -> None:
    """Check what can be checked before the job is measured.

    Raises:
        RankSliceError: the package is missing, or the folder for logs is there already.
    """
    if find_spec("mlperf_loadgen") is None:
        remedy = MISSING if machine() == "x86_64" else _COMPILE
        raise RankSliceError(Mistake("--loadgen", "needs the package mlcommons-loadgen", remedy))
    found = what_forbids(logs, lambda there: "is a folder that exists already") if logs else ""
    if found:
        raise RankSliceError(Mistake(str(logs), found, "choose another --loadgen-logs"))


def run_loadgen(request: ScenarioRequest, logs: Path | None = None) -> LoadgenTest:
    """Have MLPerf's load generator drive a job; return what it measured.

    The frames go through a program's pipeline, and are in memory before the test begins.

    Args:
        request: the job and the scenario.
        logs: folder to make for the generator's files; ``None``: they are removed.

    Raises:
        RankSliceError: the package is missing, the job failed, or the generator crashed.
    """
    check_loadgen(logs)
    with ExitStack() as stack:
        own = stack.enter_context(temporary_folder()).path
        folder = own / "logs"
        if logs is None:
            folder.mkdir()
        else:
            folder = stack.enter_context(new_folder(logs, kind="folders of logs"))
        times = _run(_settings(request, folder), own)
        log = read_text(folder / _DETAIL, "the load generator's log", _LARGEST_LOG)
    seen = figures_of(
        request.scenario, *times, target_fps=request.target_fps, limit_s=request.limit_s
    )
    return LoadgenTest(figures_of_log(request.scenario.name, log), seen)


def _settings(request: ScenarioRequest, logs: Path) -> LoadgenSettings:
    options, scenario = request.options, request.scenario
    frames = options.frames or 0
    samples = scenario.samples or frames
    return LoadgenSettings(
        folder=str(request.folder),
        scenario=scenario.name,
        queries=frames // (scenario.samples or 1),
        samples=samples,
        inputs=options.inputs,
        seed=options.seed,
        target_fps=request.target_fps,
        limit_s=request.limit_s,
        window=options.window,
        exact=options.exact,
        start_timeout_s=options.start_timeout_s,
        frame_timeout_s=options.frame_timeout_s,
        mpirun=str(request.mpirun or ""),
        ssh_config=str(request.ssh_config or ""),
        logs=str(logs),
        preprocessing=options.preprocessing,
    )


def _run(settings: LoadgenSettings, own: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Run the generator's process to its end; return when frames were given and done.

    Raises:
        RankSliceError: it failed.
    """
    found, printed = own / "found.json", own / "printed"
    child = [sys.executable, "-m", _CHILD, json.dumps(asdict(settings)), str(found)]
    with printed.open("wb") as output:
        # A session of its own: Ctrl-C is for this process, which ends that one.
        process = subprocess.Popen(
            tethered(child),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
            process.kill()
            raise
    if code or not found.is_file():
        raise RankSliceError(Mistake("--loadgen", _crash(code, printed)))
    record = json.loads(found.read_text())
    if told := record.get("mistakes"):
        raise RankSliceError(*(each if isinstance(each, str) else Mistake(**each) for each in told))
    return np.array(record["begins_s"]), np.array(record["ends_s"])


def _crash(code: int, printed: Path) -> str:
    if code < 0:
        return f"the load generator crashed ({signal_name(-code)})"
    lines = printed.read_text(errors="replace").strip().splitlines()
    return f"the load generator failed: {lines[-1] if lines else f'it ended with code {code}'}"
