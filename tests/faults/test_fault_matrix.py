"""Each way in which a job can come to harm, at each place, under both versions of Open MPI.

Whatever happens: the launcher ends soon and not with success, one message says where it happened,
results that had come out are kept, and nothing of the job is left behind.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import onnx
import psutil
import pytest
from command_line import COMMAND
from PIL import Image
from real_jobs import (
    CORES,
    chain,
    chain_folder,
    debians_mpirun,
    let_ranks_sleep,
    processes_of,
    ranks_of,
    replace_file,
    wheels_mpirun,
)

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.reading.read_driver import read_driver

pytestmark = pytest.mark.timeout(600)

RANKS = 3
SLEEP_MS = 5
UNENDING = ("--frames", "1000000")
START_TIMEOUT_S = 120
AT_ONCE = 2
"""How many jobs run at the same time."""

FAULTY_ENGINE = '''
import os
import signal


class _Faulty(NullEngine):
    """Comes to harm at frame 20, in the way that the option ``fault`` says."""

    frame = 0

    def run(self, inputs, outputs):
        if self.frame == 20 and self.fault == "raise":
            raise RuntimeError("the accelerator is gone")
        if self.frame == 20 and self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "hang at first" or self.frame == 20 and self.fault == "hang":
            time.sleep(10_000)
        super().run(inputs, outputs)
        self.frame += 1

    def warm_up_hindrance(self):
        return "" if self.fault == "hang at first" else super().warm_up_hindrance()


def open_engine(settings):
    engine = _Faulty(float(settings.options["sleep_ms"]) / 1e3)
    engine.fault = settings.options.get("fault")
    return engine
'''

ON_SEPARATE_BOARDS = """
import os, sys
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "boards")
driver = os.path.join(folder, os.environ["OMPI_COMM_WORLD_RANK"], "driver.py")
os.execv(sys.executable, [sys.executable, driver, *sys.argv[1:]])
"""
"""A driver that lets each rank run a build folder of its own, as boards do."""


class Job:
    """A running launcher and its job."""

    def __init__(self, folder: Path, mpirun: Path, *arguments: str) -> None:
        self.folder = folder
        self.results = folder / "results.bin"
        if "--results" in arguments:
            self.results = Path(arguments[arguments.index("--results") + 1])
        self._errors = folder.with_suffix(".err").open("w+b")
        self.launcher = subprocess.Popen(
            [*COMMAND, "run", str(folder), "--mpirun", str(mpirun), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env={**os.environ, "COLUMNS": "200"},
        )
        self._segments: set[Path] = set()
        self.mpirun = self._wait_for_mpirun()

    def _wait_for_mpirun(self) -> int | None:
        """Return the process that becomes mpirun; ``None`` if the launcher ends without one."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.launcher.poll() is None:
            assert time.monotonic() < deadline, "mpirun does not start"
            for process in processes_of(self.folder / "driver.py"):
                with suppress(psutil.Error, KeyError):  # it may be about to become mpirun
                    if process.ppid() == self.launcher.pid:
                        self._segments.add(Path(process.environ()["RANKSLICE_SESSION"]))
                        return process.pid
            time.sleep(0.05)
        return None

    def wait_for_frames(self, count: int = 20) -> dict[int, psutil.Process]:
        """Return the ranks, by number, once some frames have come out."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.completed() < count:
            assert self.launcher.poll() is None, self.errors()
            assert time.monotonic() < deadline, "the job has not started"
            time.sleep(0.05)
        ranks = ranks_of(self.folder)
        for process in ranks.values():
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            self._segments |= set(map(Path, re.findall(r"/dev/shm/\S+", maps)))
        return ranks

    def completed(self) -> int:
        return len(self.frames())

    def frames(self) -> list[int]:
        """Return the numbers of the frames that are in the results, at their place or not yet."""
        meanwhile = self.results.parent.glob(".rankslice-run-*/results.bin")
        for path in (*meanwhile, self.results):
            with suppress(JobError):
                return [int(frame) for frame in read_results(path).records["frame"]]
        return []

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()

    def left_in_shared_memory(self) -> set[Path]:
        return {path for path in self._segments if path.exists()}

    def end(self) -> int:
        """Wait for the launcher; return its exit code."""
        return self.launcher.wait(START_TIMEOUT_S)

    def close(self) -> None:
        self._errors.close()
        for process in processes_of(self.folder):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        for path in self.left_in_shared_memory():
            path.unlink() if path.is_file() else shutil.rmtree(path)


@dataclass(frozen=True)
class Outcome:
    """What became of a job after its fault."""

    code: int
    seconds: float
    """From the fault until the launcher's end; from the launcher's start, of a fault at start."""
    errors: list[str]
    """The messages of the command line, in its order."""
    shown: str
    """All that it wrote to stderr."""
    had: int
    """Frames that had come out before the fault."""
    kept: list[int]
    """Numbers of the frames in the results file."""
    crowding: float
    """Of the machine meanwhile."""
    left: list[str]
    """Processes and shared memory that were there 6 s later."""
    victim: str
    """Pattern for how messages name the rank that came to harm."""


@dataclass(frozen=True)
class Fault:
    """A way to come to harm."""

    strike: Callable[[Job, int], float]
    """Wait for the right moment and do harm to a rank; return when, on ``time.monotonic``."""
    message: str
    """What the message must match; VICTIM stands for the rank's place."""
    damage: Callable[[Path, int], tuple[str, ...]] = lambda folder, victim: UNENDING
    """What is done to the build folder before; returns arguments of the command line."""
    ranks: tuple[int, ...] = tuple(range(RANKS))
    within_s: float = 10.0
    keeps: bool = True
    """Whether frames had come out before."""
    code: int = 1
    prepared: str = "sleeping"


def signalled(number: signal.Signals) -> Callable[[Job, int], float]:
    """Strike a rank with a signal."""

    def strike(job: Job, victim: int) -> float:
        process = job.wait_for_frames()[victim]
        os.kill(process.pid, number)
        return time.monotonic()

    return strike


def stopped(job: Job, victim: int) -> float:
    process = job.wait_for_frames()[victim]
    time.sleep(3)  # its neighbours learn once a second what it works on
    os.kill(process.pid, signal.SIGSTOP)
    return time.monotonic()


def strike_launcher(number: signal.Signals) -> Callable[[Job, int], float]:
    """Strike the launcher with a signal."""

    def strike(job: Job, victim: int) -> float:
        job.wait_for_frames()
        job.launcher.send_signal(number)
        return time.monotonic()

    return strike


def strike_mpirun(job: Job, victim: int) -> float:
    job.wait_for_frames()
    assert job.mpirun is not None
    os.kill(job.mpirun, signal.SIGKILL)
    return time.monotonic()


def strikes_itself(job: Job, victim: int) -> float:
    """Wait until frames stop to come out."""
    deadline = time.monotonic() + START_TIMEOUT_S
    count, since = 0, time.monotonic()
    while job.launcher.poll() is None and time.monotonic() < deadline:
        now = job.completed()
        if now != count:
            count, since = now, time.monotonic()
        elif count and time.monotonic() - since > 0.5:
            break
        time.sleep(0.05)
    return since


def at_start(job: Job, victim: int) -> float:
    """Nothing is to be done: it fails at its start."""
    return time.monotonic()


def faulty_engine(fault: str, *arguments: str) -> Callable[[Path, int], tuple[str, ...]]:
    def damage(folder: Path, victim: int) -> tuple[str, ...]:
        let_ranks_sleep(folder, SLEEP_MS, engine=FAULTY_ENGINE, options={victim: {"fault": fault}})
        return (*UNENDING, *arguments)

    return damage


def by_messages(folder: Path, victim: int) -> tuple[str, ...]:
    return (*UNENDING, "--no-direct")


def limited(name: str, value: int, *arguments: str) -> Callable[[Path, int], tuple[str, ...]]:
    """Give the ranks a limit of the system, named as in Python's ``resource``."""

    def damage(folder: Path, victim: int) -> tuple[str, ...]:
        driver = folder / "driver.py"
        code = f"import resource\nresource.setrlimit(resource.{name}, ({value}, {value}))\n"
        text = driver.read_text()
        replace_file(
            driver, text.replace("from runtime import", code + "from runtime import", 1).encode()
        )
        return (*UNENDING, "--results", os.devnull, *arguments)

    return damage


def broken_image(folder: Path, victim: int) -> tuple[str, ...]:
    images = folder / "images"
    images.mkdir()
    for number in range(40):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(images / f"{number:02}.png")
    (images / "40.png").write_bytes(b"no image")
    return ("--input", str(images))


def full_disk(folder: Path, victim: int) -> tuple[str, ...]:
    disk = folder.with_suffix(".disk")
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", disk], check=True)
    return (*UNENDING, "--results", str(disk / "results.bin"))


def submodel(folder: Path, victim: int) -> Path:
    (segment,) = read_driver(folder / "driver.py").segments_of(victim)
    return folder / segment.file


def cut_short(folder: Path, victim: int) -> tuple[str, ...]:
    path = submodel(folder, victim)
    replace_file(path, path.read_bytes()[:-20])
    return UNENDING


def of_another_shape(folder: Path, victim: int) -> tuple[str, ...]:
    path = submodel(folder, victim)
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[1].dim_value = 17
    replace_file(path, model.SerializeToString())
    return UNENDING


def one_board_of_another_build(folder: Path, victim: int) -> tuple[str, ...]:
    for rank in range(RANKS):
        copy(folder, folder / "boards" / str(rank))
    let_ranks_sleep(folder / "boards" / str(victim), SLEEP_MS + 1)
    # The launcher reads the job behind it.
    driver = ON_SEPARATE_BOARDS.encode() + (folder / "driver.py").read_bytes()
    replace_file(folder / "driver.py", driver)
    return UNENDING


FIRST, LAST = (0,), (RANKS - 1,)
IN_TURN = (1, 2)
"""Those that take turns, of the job with such ranks."""
SECOND_IN_TURN = (2,)
"""Its frame 20, counted from 0, is frame 41 of the stream."""
STEP = r"(source|segment 0|sink), frame \d+"


def on_route(name: str) -> Callable[[Path, int], tuple[str, ...]]:
    """Have all frames take one of two routes."""
    return lambda folder, victim: (*UNENDING, "--switch", name)


FAULTS = {
    "killed": Fault(
        signalled(signal.SIGKILL), rf"VICTIM: the process was killed or crashed, last at {STEP}"
    ),
    "killed, by messages": Fault(
        signalled(signal.SIGKILL),
        rf"VICTIM: the process was killed or crashed, last at {STEP}",
        by_messages,
    ),
    "killed in a step": Fault(
        strikes_itself,
        "VICTIM: the process was killed or crashed, last at segment 0, frame 20;",
        faulty_engine("kill"),
    ),
    "stopped": Fault(
        stopped,
        rf"no sign of life for \d s from VICTIM, last heard at {STEP}",
        within_s=15,
    ),
    "stopped, by messages": Fault(
        stopped,
        rf"no sign of life for \d s from VICTIM, last heard at {STEP}",
        by_messages,
        within_s=15,
    ),
    "stopped, frames by the clock": Fault(
        stopped,
        rf"no sign of life for \d s from VICTIM, last heard at {STEP}",
        lambda folder, victim: (*UNENDING, "--fps", "30"),
        ranks=(1, 2),
        within_s=15,
    ),
    "terminated": Fault(
        signalled(signal.SIGTERM), rf"VICTIM: the process was told to stop, last at {STEP}"
    ),
    "engine raises": Fault(
        strikes_itself,
        "VICTIM: segment 0, frame 20: RuntimeError: the accelerator is gone",
        faulty_engine("raise"),
    ),
    "engine hangs": Fault(
        strikes_itself,
        r"VICTIM: segment 0, frame 20: not finished after \d s \(--frame-timeout sets the limit\)",
        faulty_engine("hang", "--frame-timeout", "2"),
        within_s=15,
    ),
    "killed, in turn": Fault(
        signalled(signal.SIGKILL),
        rf"VICTIM: the process was killed or crashed, last at {STEP}",
        ranks=IN_TURN,
        prepared="in turn",
    ),
    "killed, the whole in turn": Fault(
        signalled(signal.SIGKILL),
        rf"VICTIM: the process was killed or crashed, last at {STEP}",
        ranks=(0, 1),
        prepared="the whole in turn",
    ),
    "killed, not on the route": Fault(
        signalled(signal.SIGKILL),
        "VICTIM: the process was killed or crashed, last at its first frame",
        on_route("normal"),
        ranks=(1, 2),
        prepared="two routes",
    ),
    "stopped, not on the route": Fault(
        stopped,
        r"no sign of life for \d s from VICTIM, last heard at its first frame",
        on_route("normal"),
        ranks=(1, 2),
        within_s=15,
        prepared="two routes",
    ),
    "killed, on the usual route": Fault(
        signalled(signal.SIGKILL),
        rf"VICTIM: the process was killed or crashed, last at {STEP}( of normal)?;",
        on_route("normal"),
        FIRST,
        prepared="two routes",
    ),
    "killed, on the route for a surge": Fault(
        signalled(signal.SIGKILL),
        r"VICTIM: the process was killed or crashed, last at segment \d, frame \d+ of surge",
        on_route("surge"),
        ranks=(1, 2),
        prepared="two routes",
    ),
    "stopped, the whole in turn": Fault(
        stopped,
        rf"no sign of life for \d s from VICTIM, last heard at {STEP}",
        ranks=(0, 1),
        within_s=15,
        prepared="the whole in turn",
    ),
    "killed in a step, in turn": Fault(
        strikes_itself,
        "VICTIM: the process was killed or crashed, last at segment 0, frame 41;",
        faulty_engine("kill"),
        SECOND_IN_TURN,
        prepared="in turn",
    ),
    "stopped, in turn": Fault(
        stopped,
        rf"no sign of life for \d s from VICTIM, last heard at {STEP}",
        ranks=IN_TURN,
        within_s=15,
        prepared="in turn",
    ),
    "stopped, in turn, by messages": Fault(
        stopped,
        rf"no sign of life for \d s from VICTIM, last heard at {STEP}",
        by_messages,
        SECOND_IN_TURN,
        within_s=15,
        prepared="in turn",
    ),
    "engine raises, in turn": Fault(
        strikes_itself,
        "VICTIM: segment 0, frame 41: RuntimeError: the accelerator is gone",
        faulty_engine("raise"),
        SECOND_IN_TURN,
        prepared="in turn",
    ),
    "engine hangs, in turn": Fault(
        strikes_itself,
        r"VICTIM: segment 0, frame 41: not finished after \d s \(--frame-timeout sets the limit\)",
        faulty_engine("hang", "--frame-timeout", "2"),
        SECOND_IN_TURN,
        within_s=15,
        prepared="in turn",
    ),
    "warm-up hangs": Fault(
        at_start,
        r"the job has not started within 4 s: a rank is missing, or takes longer to load",
        faulty_engine("hang at first", "--start-timeout", "4"),
        keeps=False,
        within_s=15,
    ),
    "source raises": Fault(
        strikes_itself,
        r"VICTIM: source, frame 40: .*/40\.png: not an image",
        broken_image,
        FIRST,
        prepared="of images",
    ),
    "disk is full": Fault(
        strikes_itself,
        r"VICTIM: sink, frame \d+: results file .*: No space left on device",
        full_disk,
        LAST,
    ),
    "sub-model cut short": Fault(
        at_start, "VICTIM: .*cannot load it", cut_short, keeps=False, prepared="computing"
    ),
    "tensor of another shape": Fault(
        at_start,
        r"VICTIM: .*float32\[1, 17\], the job says float32\[1, 16\]",
        of_another_shape,
        keeps=False,
        prepared="computing",
    ),
    "no memory for rings": Fault(
        at_start,
        r"VICTIM: no \d+\.\d MB for tensors that other ranks of this board read \(File too large\):"
        r" raise the limit of the size of files \(ulimit -f\), or run with --no-direct",
        limited("RLIMIT_FSIZE", 17 << 20),
        FIRST,
        keeps=False,
        prepared="of large tensors",
    ),
    "no shared memory for MPI": Fault(
        at_start,
        r"VICTIM: the limit of the size of files is 1000000 bytes, and MPI's shared memory needs"
        r" \d+: raise it \(ulimit -f\)",
        limited("RLIMIT_FSIZE", 1_000_000),
        FIRST,
        keeps=False,
    ),
    "no open files": Fault(
        at_start,
        r"VICTIM: the limit of open files is 30, expected at least \d+: raise it \(ulimit -n\)",
        limited("RLIMIT_NOFILE", 30),
        FIRST,
        keeps=False,
    ),
    "board of another build": Fault(
        at_start, "rank NUMBER .*build", one_board_of_another_build, keeps=False
    ),
    "interrupted": Fault(strike_launcher(signal.SIGINT), "^interrupted$", ranks=FIRST),
    "mpirun killed": Fault(strike_mpirun, "mpirun ended with signal SIGKILL", ranks=FIRST),
    "launcher killed": Fault(
        strike_launcher(signal.SIGKILL), "", ranks=FIRST, code=-signal.SIGKILL
    ),
}

USUAL = ("killed", 0, "5.0")
"""The one that `make test` runs."""

FAST = {
    USUAL,
    ("stopped", 0, "5.0"),
    ("killed, by messages", 1, "5.0"),
    ("killed in a step", 1, "5.0"),
    ("no memory for rings", 0, "5.0"),
    ("no shared memory for MPI", 0, "5.0"),
    ("no open files", 0, "5.0"),
    ("terminated", 1, "5.0"),
    ("engine raises", 2, "5.0"),
    ("engine hangs", 0, "5.0"),
    ("warm-up hangs", 1, "5.0"),
    ("source raises", 0, "5.0"),
    ("disk is full", 2, "5.0"),
    ("sub-model cut short", 1, "5.0"),
    ("tensor of another shape", 2, "5.0"),
    ("board of another build", 1, "5.0"),
    ("interrupted", 0, "5.0"),
    ("mpirun killed", 0, "5.0"),
    ("launcher killed", 0, "5.0"),
    ("killed", 1, "4.1"),
    ("stopped, frames by the clock", 1, "4.1"),
    ("stopped, frames by the clock", 2, "5.0"),
    ("engine raises", 1, "4.1"),
    ("killed, in turn", 1, "4.1"),
    ("killed in a step, in turn", 2, "5.0"),
    ("stopped, in turn", 2, "5.0"),
    ("engine raises, in turn", 2, "5.0"),
    ("engine hangs, in turn", 2, "4.1"),
    ("killed, not on the route", 1, "5.0"),
    ("killed, not on the route", 2, "4.1"),
    ("stopped, not on the route", 1, "5.0"),
    ("killed, on the usual route", 0, "5.0"),
    ("killed, on the route for a surge", 1, "5.0"),
}

Case = tuple[str, int, str]
"""Name of the fault, the rank that it strikes, the version of Open MPI."""

CASES: list[Case] = [
    (name, victim, version)
    for name, fault in FAULTS.items()
    for victim in fault.ranks
    for version in ("5.0", "4.1")
]


def copy(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("packages", "boards"))
    return target


def suffer(case: Case, folder: Path, mpirun: Path) -> Outcome:
    """Run a job in a folder of its own, let it come to harm, and see what becomes of it."""
    name, victim, _ = case
    fault = FAULTS[name]
    arguments = fault.damage(folder, victim)
    begin = time.monotonic()
    job = Job(folder, mpirun, *arguments)
    try:
        struck = fault.strike(job, victim) if fault.keeps else begin
        had = job.completed()
        code = job.end()
        seconds = time.monotonic() - struck
        left = wait_for_nothing_left(job)
        errors = re.findall(r"^error: (.*)$", job.errors(), re.MULTILINE)
        kept = job.frames() if fault.keeps else []
        return Outcome(
            code=code,
            seconds=seconds,
            errors=errors,
            shown=job.errors(),
            had=had,
            kept=kept,
            crowding=crowding(),
            left=left,
            victim=place(folder, victim),
        )
    finally:
        job.close()
        subprocess.run(["umount", folder.with_suffix(".disk")], check=False, capture_output=True)


def place(folder: Path, rank: int) -> str:
    """Return a pattern for how messages name a rank."""
    return re.escape(read_driver(folder / "driver.py").ranks[rank].name)


def crowding() -> float:
    """Return by what factor a machine that does other things, too, may be late."""
    return max(1.0, os.getloadavg()[0] / (2 * len(CORES)))


def wait_for_nothing_left(job: Job) -> list[str]:
    """Return what is still there of a job after six seconds."""
    deadline = time.monotonic() + 6 * crowding()
    while True:
        left = [" ".join(process.info["cmdline"]) for process in processes_of(job.folder)]
        left += [str(path) for path in job.left_in_shared_memory()]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build folders to copy, by what is special about them."""
    place = tmp_path_factory.mktemp("faults")
    computing = chain_folder(place / "chain", RANKS)
    image_model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,4,4] x) => (float[1,3,4,4] y)'
        " { a = Relu(x) b = Relu(a) y = Relu(b) }"
    )
    for number, node in enumerate(image_model.graph.node):
        node.name = f"L{number}"
    of_images = let_ranks_sleep(chain_folder(place / "images", RANKS, image_model), SLEEP_MS)
    large = let_ranks_sleep(chain_folder(place / "large", RANKS, chain(RANKS, 3_000_000)), SLEEP_MS)
    in_turn = let_ranks_sleep(
        chain_folder(place / "in-turn", RANKS, weights={1: (1,) * len(IN_TURN)}), SLEEP_MS
    )
    whole_in_turn = let_ranks_sleep(
        chain_folder(place / "whole-in-turn", 1, weights={0: (1, 1)}), SLEEP_MS
    )
    two_routes = let_ranks_sleep(
        chain_folder(place / "two-routes", RANKS, usually_whole=True), SLEEP_MS
    )
    sleeping = copy(computing, place / "sleeping")
    let_ranks_sleep(sleeping, SLEEP_MS)
    return {
        "computing": computing,
        "in turn": in_turn,
        "the whole in turn": whole_in_turn,
        "two routes": two_routes,
        "of images": of_images,
        "of large tensors": large,
        "sleeping": sleeping,
    }


@pytest.fixture(scope="module")
def outcomes(
    prepared: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[Case], Future[Outcome]]]:
    """Run the jobs of all tests that were chosen, a few at a time, ahead of the tests."""
    place = tmp_path_factory.mktemp("jobs")
    futures: dict[Case, Future[Outcome]] = {}
    pool = ThreadPoolExecutor(AT_ONCE)

    def outcome(case: Case) -> Future[Outcome]:
        if case not in futures:
            name, _, version = case
            mpirun = wheels_mpirun() if version == "5.0" else debians_mpirun()
            folder = copy(prepared[FAULTS[name].prepared], place / f"job-{len(futures)}")
            futures[case] = pool.submit(suffer, case, folder, mpirun)
        return futures[case]

    for item in request.session.items:
        if item.path == request.path and isinstance(item, pytest.Function):
            with suppress(pytest.skip.Exception):
                outcome(item.callspec.params["case"])
    yield outcome
    pool.shutdown(cancel_futures=True)


def parameters(case: Case) -> object:
    name, victim, version = case
    skips = pytest.mark.skipif(
        name == "disk is full" and os.geteuid() != 0, reason="only root can mount a small disk"
    )
    tier = [] if case == USUAL else [pytest.mark.ci if case in FAST else pytest.mark.slow]
    return pytest.param(case, id=f"{name}-rank{victim}-{version}", marks=[skips, *tier])


@pytest.mark.parametrize("case", [parameters(case) for case in CASES])
def test_a_job_that_comes_to_harm_ends_soon_says_where_and_leaves_nothing_behind(
    outcomes: Callable[[Case], Future[Outcome]], case: Case
) -> None:
    name, victim, _ = case
    fault = FAULTS[name]
    outcome = outcomes(case).result()
    print(f"FAULT {name}; rank {victim}; {case[2]}; {outcome.seconds:.1f} s; {outcome.errors}")
    assert fault.code == outcome.code, outcome.shown
    assert "Traceback" not in outcome.shown
    beside = re.compile(r" finished frames are in |^what each rank did last: ")
    messages = [error for error in outcome.errors if not beside.search(error)]
    assert ([1] if fault.message else [0]) == [len(messages)], outcome.shown
    expected = fault.message.replace("VICTIM", outcome.victim).replace("NUMBER", str(victim))
    assert all(re.search(expected, text) for text in messages), messages
    assert list(range(len(outcome.kept))) == outcome.kept
    assert outcome.had <= len(outcome.kept)
    assert fault.keeps == bool(outcome.kept)
    assert [] == outcome.left
    assert outcome.seconds <= fault.within_s * outcome.crowding
