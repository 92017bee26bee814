"""What a benchmark measured, as one record and one file: raw values, from which figures follow."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.system.modes import BoardMode
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.files.output_file import write_output
from rankslice.framework.reading.records import read_document

FORMAT = "rankslice-benchmark"
VERSION = 3
_MAX_BYTES = 1 << 28
"""Of a file: ten million values."""
_MAX_NS = 3_000_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that started the jobs."""

    host: str
    processor: str
    cores: int
    """That may be used."""
    kernel: str
    governor: str
    """Of the processor's frequency; empty: unknown."""
    versions: tuple[tuple[str, str], ...]
    load_before: float
    """Mean number of processes that could run, in the minute before the first start."""
    load_after: float
    mode: BoardMode = field(default_factory=BoardMode)
    """Before the first start."""


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """Another board of a job, before the first start."""

    name: str
    cores: int
    governor: str
    """Of the processor's frequency; empty: unknown."""
    load_before: float
    """As of :class:`Machine`."""
    mode: BoardMode = field(default_factory=BoardMode)


@dataclass(frozen=True, slots=True)
class RankFacts:
    """Where a rank ran."""

    key: str
    board: str
    engine: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A job that was measured."""

    name: str
    """As the user named it: the build folder, or ``unsliced``."""
    model: str
    model_sha256: str
    job_sha256: str
    """Digest of what its driver says."""
    window: int
    """Most frames inside."""
    ranks: tuple[RankFacts, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """How frames come."""

    name: str
    """For people: ``closed loop``, ``80 %``."""
    fps: float | None = None
    """Frames that arrive per second; ``None``: a frame comes as soon as there is room for it."""
    is_live: bool = False
    """Whether frames come when a camera makes them; ``fps`` is ``None``."""
    share: float | None = None
    """Of the saturation throughput, from 0 to 1; ``None``: the rate was given, or there is none."""
    beside: str = ""
    """What a co-runner does on each board of the job: ``cpu``, ``memory``, ``network``; empty:
    there is none."""
    busy: float = 0.0
    """Share of the time for which it works."""
    frequency_mhz: float | None = None
    """To which the clocks of all boards are set; ``None``: they are not."""

    @property
    def is_closed_loop(self) -> bool:
        """Whether frames come as fast as they are taken."""
        return self.fps is None and not self.is_live


@dataclass(frozen=True, slots=True)
class Noise:
    """What a machine did beside the job."""

    board: str
    """Empty: the machine that started the job."""
    other_cores: float
    """Processor time of other processes over time, in cores."""
    steal_share: float
    """Share of the processors' time that the hypervisor took."""
    throttled: int
    """How often a core was slowed down because of its temperature."""


@dataclass(frozen=True, slots=True)
class CoRunnerCores:
    """What a co-runner has had on a board."""

    board: str
    """Empty: the machine that started the job."""
    cores: float
    """Processor time over time."""


@dataclass(frozen=True, slots=True)
class StageTimes:
    """How long one segment computed."""

    rank: int
    route: int
    """1 on the route for a surge."""
    segment: int
    """Number in its rank and route."""
    compute_ns: tuple[int, ...]
    """By frame that it handled."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a job's processes, and what its frames took."""

    subject: int
    """Place in the subjects."""
    load: int
    """Place in the loads."""
    turn: int
    """Starts with the same number were measured one after the other, to be compared."""
    began_s: float
    """Seconds since 1970."""
    took_s: float
    """From the start of the processes to their end."""
    arrived_ns: tuple[int, ...]
    """When each frame was to arrive, since the first one."""
    latency_ns: tuple[int, ...]
    """By frame, from that moment until its results were out."""
    stages: tuple[StageTimes, ...]
    noise: tuple[Noise, ...]
    """Of the machine that started the job, then of its other boards that were seen twice."""
    co_runner: tuple[CoRunnerCores, ...] = ()
    """What the load's co-runner has had, by board."""
    frequency_mhz: float | None = None
    """Mean of the clocks of ranks' cores on the board of the first rank here, or of the first
    one, while frames went through; ``None``: the board does not provide it."""
    temperature_c: float | None = None
    """Of its warmest sensor, likewise."""
    limit_mhz: float | None = None
    """What the kernels made of the load's frequency, the lowest one; ``None``: it has none."""
    mj_per_frame: float | None = None
    """Energy of all boards; ``None``: that of one is not known."""

    @property
    def latencies_ns(self) -> NDArray[np.int64]:
        return np.array(self.latency_ns, np.int64)

    @property
    def completed_ns(self) -> NDArray[np.int64]:
        """When the results of frames were out, in order, since the first arrival."""
        return np.sort(np.array(self.arrived_ns, np.int64) + self.latencies_ns)


@dataclass(frozen=True, slots=True)
class Bench:
    """All that a benchmark measured."""

    inputs: tuple[str, ...]
    """What named the source of frames."""
    frames: int
    seed: int
    """Of the order of starts."""
    machine: Machine
    boards: tuple[BoardFacts, ...]
    subjects: tuple[Subject, ...]
    loads: tuple[Load, ...]
    starts: tuple[Start, ...]
    """In the order of time."""

    def of(self, subject: int, load: int) -> tuple[Start, ...]:
        """Return the starts of a job under a load, by turn."""
        own = (start for start in self.starts if (start.subject, start.load) == (subject, load))
        return tuple(sorted(own, key=lambda start: start.turn))


def bench_record(bench: Bench) -> dict[str, Any]:
    record: dict[str, Any] = {"format": FORMAT, "version": VERSION, **asdict(bench)}
    record["machine"]["versions"] = dict(bench.machine.versions)
    return record


def write_bench(bench: Bench, path: Path) -> None:
    """Write the file of a benchmark.

    Raises:
        RankSliceError: it cannot be written.
    """
    write_output(path, json.dumps(bench_record(bench)) + "\n", "--out")


def read_bench(path: Path) -> Bench:
    """Read the file of a benchmark.

    Raises:
        RankSliceError: it cannot be read, is not such a file, or contradicts itself.
    """
    text = read_text(path, "a benchmark's", _MAX_BYTES)
    where = str(path)
    remedy = "measure again"
    bench = read_document(Bench, text, where, "benchmark", VERSION, "rankslice bench", remedy)
    if not (bench.subjects and bench.loads and bench.starts):
        raise RankSliceError(Mistake(where, "nothing was measured", remedy))
    for number, start in enumerate(bench.starts):
        if fault := _fault(bench, start):
            raise RankSliceError(Mistake(f"{where}: starts[{number}]", fault))
    return bench


def _fault(bench: Bench, start: Start) -> str:
    if start.subject not in range(len(bench.subjects)) or start.load not in range(len(bench.loads)):
        return "belongs to a job or load that does not exist"
    if len(start.latency_ns) < 2 or len(start.latency_ns) != len(start.arrived_ns):
        return "has not one arrival and one latency of each of its frames"
    series = (start.arrived_ns, *(stage.compute_ns for stage in start.stages))
    if min(start.latency_ns) < 1 or any(value < 0 for values in series for value in values):
        return "has a time that is below 0, or a latency of 0"
    if any(value >= _MAX_NS for values in (start.latency_ns, *series) for value in values):
        return "has a time of a hundred years"
    ranks = range(len(bench.subjects[start.subject].ranks))
    if any(stage.rank not in ranks for stage in start.stages):
        return "has a stage of a rank that does not exist"
    return ""
