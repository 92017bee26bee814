"""Jobs that go on when a board is lost: each way to lose one, at each position."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import rankslice as command
from numpy.typing import NDArray
from poisoned import LAYERS, check_a_thousand, frame, poisoned_model, result
from served import served
from waiting import until

import rankslice
from boards import Board, Boards
from boards.deployments import (
    Launcher,
    deploy,
    epochs_on,
    home,
    of_job,
    signal_rank,
    survivable,
    survivable_chain,
)
from boards.losses import LOSSES, kill_rank
from rankslice.backend.runtime.engines import EngineSettings, open_engine
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.reading.read_driver import read_driver
from rankslice.session.recording_folder import read_recording

pytestmark = [pytest.mark.ci, pytest.mark.timeout(300)]

RACK = {"count": 3}

FPS = 20
FRAMES = 160
STRUCK_AT = 40
SETTLED_S = 4.0
PREPARED_S = 15.0
"""Time from a loss until what follows the next one is prepared."""


BOUNDS_S = {name: (10, 3) if name == "rank killed" else (15, 8) for name in LOSSES}
"""Of the time to the next result, without and with standby; silence is noticed later."""
FAST = {("rank killed", 1, False), ("cable pulled", 0, False)}
CASES = [
    pytest.param(
        name,
        place,
        standby,
        marks=() if (name, place, standby) in FAST else pytest.mark.slow,
        id=f"{name}-{place}{'-standby' * standby}",
    )
    for name in LOSSES
    for place in range(3)
    for standby in (False, True)
]


@pytest.fixture(scope="module")
def out(rack: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of a chain, a layer a board, that may lose each of them."""
    folder = survivable_chain(rack, tmp_path_factory.mktemp("survivable"))
    assert 0 == deploy(rack, folder).code
    return folder


def test_one_deployment_brings_the_packages_of_all_plans(
    rack: Boards, out: Path, tmp_path: Path
) -> None:
    assert 0 == deploy(rack, out, "--json", str(tmp_path / "deployed.json")).code
    deployed = json.loads((tmp_path / "deployed.json").read_text())["boards"]
    assert {(board.name, "there") for board in rack} == {
        (package["board"], package["state"]) for package in deployed
    }
    for board in rack:
        others = sorted(other.name for other in rack if other is not board)
        own = [package for package in deployed if package["board"] == board.name]
        assert ["", *others] == [package["without"] for package in own]
        assert 3 == len({package["manifest_sha256"] for package in own})
        runtimes = (home(board) / "packages").glob("*/runtime/driver.py")
        assert 1 == len({file.stat().st_ino for file in runtimes})


@dataclass
class Fed:
    """Frames that are fed into a pipeline, and what came of them."""

    pipeline: rankslice.Pipeline
    frames: list[NDArray[np.float32]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    results: dict[int, NDArray[Any]] = field(default_factory=dict)

    def give(self, frame: NDArray[np.float32]) -> None:
        """Submit a frame."""
        number = len(self.frames)
        self.frames.append(frame)

        def take(future: Future[dict[str, NDArray[Any]]]) -> None:
            self.times_s.append(time.monotonic())
            self.order.append(number)
            (self.results[number],) = future.result().values()

        self.pipeline.submit(frame).add_done_callback(take)

    def wait_for_next(self, since_s: float) -> float:
        """Return the seconds from a moment to the next result after the pipeline has recovered."""
        deadline = time.monotonic() + 60
        while not (later := [at for at in self.times_s if at > since_s]):
            assert time.monotonic() < deadline, self.pipeline.error
            time.sleep(0.005)
        return later[0] - since_s

    def check(self, model: Path) -> None:
        """Each frame came out once, in order, and as the unsliced model computes it."""
        assert list(range(len(self.frames))) == self.order
        engine, given, outputs = (
            open_engine("onnxruntime", EngineSettings()),
            self.pipeline.inputs,
            self.pipeline.outputs,
        )
        engine.load(model, given, outputs)
        expected = np.empty(outputs[0].shape, outputs[0].dtype)
        for number, given_frame in enumerate(self.frames):
            engine.run([given_frame], [expected])
            np.testing.assert_array_equal(expected, self.results[number])
        engine.close()


def frames_of(out: Path, seed: int) -> Callable[[], NDArray[np.float32]]:
    """Return a function that makes random frames for a build folder's model."""
    (given,) = read_driver(out / "driver.py").inputs
    rng = np.random.default_rng(seed)
    return lambda: rng.standard_normal(given.shape).astype(np.float32)


@pytest.mark.parametrize(("name", "place", "standby"), CASES)
def test_no_frame_is_lost_or_doubled_when_a_board_is(
    rack: Boards, out: Path, name: str, place: int, standby: bool
) -> None:
    loss, board, next_frame = LOSSES[name], rack[place], frames_of(out, place)
    restarts: list[rankslice.Restart] = []
    with rankslice.open(
        out,
        survive=True,
        standby=standby,
        ssh_config=rack.ssh_config,
        on_restart=restarts.append,
    ) as pipeline:
        if standby:
            time.sleep(SETTLED_S)
        fed = Fed(pipeline)
        begin, struck = time.monotonic(), 0.0
        try:
            for number in range(FRAMES):
                time.sleep(max(0.0, begin + number / FPS - time.monotonic()))
                if number == STRUCK_AT:
                    struck = time.monotonic()
                    loss.strike(board)
                fed.give(next_frame())
            pipeline.close()
        finally:
            loss.mend(board)
    fed.check(out / "model")
    assert [{board.name}] == [restart.without for restart in restarts]
    assert [0, restarts[0].completed] == [first for first, _ in pipeline.made]
    assert [out, out / "without" / board.name] == [folder for _, folder in pipeline.made]
    after = [struck, *(at for at in fed.times_s if at > struck)]
    assert max(np.diff(after)) <= BOUNDS_S[name][standby]


@pytest.mark.parametrize(
    "standby",
    [pytest.param(False, marks=pytest.mark.slow, id=""), pytest.param(True, id="standby")],
)
def test_a_second_loss_while_the_first_board_is_off_is_like_the_first(
    rack: Boards, out: Path, standby: bool
) -> None:
    next_frame, restarts = frames_of(out, 5), list[rankslice.Restart]()
    first, second = rack[2], rack[0]
    with rankslice.open(
        out, survive=True, standby=standby, ssh_config=rack.ssh_config, on_restart=restarts.append
    ) as pipeline:
        time.sleep(SETTLED_S * standby)
        fed, over = Fed(pipeline), threading.Event()

        def feed() -> None:
            while not over.wait(1 / FPS):
                fed.give(next_frame())

        feeding = threading.Thread(target=feed)
        feeding.start()
        try:
            fed.wait_for_next(time.monotonic())
            took_s = []
            for board in (first, second):
                struck = time.monotonic()
                board.cut_power()
                while len(restarts) <= len(took_s):
                    assert pipeline.error is None
                    time.sleep(0.01)
                noticed = time.monotonic()
                took_s.append(noticed - struck + fed.wait_for_next(noticed))
                if board is first:
                    await_prepared(rack[1], standby=standby)
            over.set()
            feeding.join()
            pipeline.close()
        finally:
            over.set()
            for board in (first, second):
                board.power_on()
    fed.check(out / "model")
    assert [{first.name}, {first.name, second.name}] == [each.without for each in restarts]
    for restart, board in zip(restarts, (first, second), strict=True):
        assert f"board {board.name} ({board.name}) did not answer" in str(restart.reason)
    assert max(took_s) <= BOUNDS_S["power cut"][standby]


def test_a_job_starts_without_a_board_that_is_off(rack: Boards, out: Path) -> None:
    next_frame, restarts = frames_of(out, 6), list[rankslice.Restart]()
    rack[0].cut_power()
    try:
        with rankslice.open(
            out, survive=True, ssh_config=rack.ssh_config, on_restart=restarts.append
        ) as pipeline:
            fed = Fed(pipeline)
            for _ in range(3):
                fed.give(next_frame())
            until(lambda: has_computed(pipeline))
    finally:
        rack[0].power_on()
    fed.check(out / "model")
    assert [{rack[0].name}] == [restart.without for restart in restarts]


def has_computed(pipeline: rankslice.Pipeline) -> bool:
    """Return whether both ranks are seen to have taken processor time."""
    times = [figures.get("cpu_s", 0.0) for figures in pipeline.rank_figures().values()]
    return len(times) == 2 and min(times) > 0.1


@pytest.mark.slow
def test_a_board_that_flaps_loses_nothing(rack: Boards, out: Path) -> None:
    next_frame = frames_of(out, 7)
    with rankslice.open(out, survive=True, ssh_config=rack.ssh_config) as pipeline:
        fed = Fed(pipeline)
        over = threading.Event()

        def feed() -> None:
            while not over.wait(1 / FPS):
                fed.give(next_frame())

        feeding = threading.Thread(target=feed)
        feeding.start()
        for _ in range(5):
            rack[1].unplug()
            time.sleep(7)
            rack[1].plug_in()
            time.sleep(3)
        over.set()
        feeding.join()
    fed.check(out / "model")
    assert 1 == pipeline.restarts


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_kills_at_random_moments_lose_nothing(rack: Boards, out: Path) -> None:
    """A board whose rank was killed is used again when the next one is lost."""
    next_frame, moments = frames_of(out, 8), random.Random(8)
    with rankslice.open(out, survive=True, ssh_config=rack.ssh_config) as pipeline:
        fed = Fed(pipeline)
        over = threading.Event()

        def feed() -> None:
            while not over.wait(0.002):
                fed.give(next_frame())

        feeding = threading.Thread(target=feed)
        feeding.start()
        for kill in range(50):
            fed.wait_for_next(time.monotonic())
            time.sleep(moments.random())
            kill_rank(moments.choice([board for board in rack if board.name not in pipeline.lost]))
            deadline = time.monotonic() + 60
            while pipeline.restarts <= kill and time.monotonic() < deadline:
                assert pipeline.error is None
                time.sleep(0.01)
        fed.wait_for_next(time.monotonic())
        over.set()
        feeding.join()
    fed.check(out / "model")
    assert 50 == pipeline.restarts


def test_a_job_that_waits_is_replaced_when_it_dies_and_ends_with_the_launcher(
    rack: Boards, out: Path
) -> None:
    told: list[str] = []
    with rankslice.open(
        out, survive=True, standby=True, ssh_config=rack.ssh_config, on_warning=told.append
    ) as pipeline:
        pipeline(frames_of(out, 9)())
        epochs = await_epochs(rack[1], 3)
        signal_rank(rack[1], signal.SIGKILL, of=epochs[-1])
        replaced = await_epochs(rack[1], 3, gone=epochs[-1])
        assert epochs[:-1] == replaced[:-1]
        assert 0 == pipeline.restarts
    assert "ended" == pipeline.state
    assert [] == [line for board in rack for line in of_job(board)]
    (line,) = told
    waits_for = rack[2 if epochs[-1] == 3 else 0].name
    assert f"the job that waits for the loss of {waits_for} is loaded again: rank" in line
    assert f"{rack[1].name}_cpu0 on {rack[1].name}): the process was killed or crashed" in line


def await_prepared(board: Board, *, standby: bool) -> None:
    """Wait until what follows the next loss is prepared: a job of its own, if it waits."""
    if not standby:
        time.sleep(PREPARED_S)
        return
    of_the_begin, deadline = 3, time.monotonic() + 60
    while max(epochs_on(board)) <= of_the_begin:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(SETTLED_S)


def await_epochs(board: Board, count: int, gone: int = -1) -> list[int]:
    """Return the numbers of the jobs that have a rank on a board, once there are so many."""
    deadline = time.monotonic() + 60
    while len(found := epochs_on(board)) < count or gone in found:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def test_a_run_without_end_goes_on_and_ends_at_a_signal(
    rack: Boards, out: Path, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.jsonl"
    files = {name: tmp_path / name for name in ("run.json", "run.html", "top.csv", "live.jsonl")}
    options = (
        *("--survive", "--frames", "unlimited", "--fps", FPS, "--verify", "--output", lines),
        *("--json", files["run.json"], "--html", files["run.html"], "--live", files["live.jsonl"]),
        *("--classes", files["top.csv"], "--top", 1, "--record", tmp_path / "recorded"),
    )
    launcher = Launcher(rack, out, *map(str, options))
    try:
        await_lines(launcher, lines, 20)
        kill_rank(rack[1])
        await_lines(launcher, lines, len(lines.read_text().splitlines()) + 40)
        launcher.process.send_signal(signal.SIGTERM)
        assert 0 == launcher.process.wait(60)
        told = launcher.errors()
    finally:
        launcher.close()
    assert f"warning: rank 1 ({rack[1].name}_cpu0" in told
    assert f"going on without {rack[1].name}" in told
    assert "ended by SIGTERM: every frame that had entered has come out" in told
    numbers = [json.loads(line)["frame"] for line in lines.read_text().splitlines()]
    assert list(range(len(numbers))) == numbers
    assert len(numbers) == len(read_results(out / "results.bin"))
    assert [] == [line for board in rack for line in of_job(board)]

    run = json.loads(files["run.json"].read_text())
    assert (len(numbers), True) == (run["completed"], run["verify"]["passed"])
    (restart,) = run["restarts"]
    assert [rack[1].name] == restart["without"]
    assert 0 < restart["recovered_s"] < 30
    left = {rack[0].name, rack[2].name}
    assert all(rank["key"].partition("_")[0] in left for rank in run["ranks"])
    assert len(numbers) == len(files["top.csv"].read_text().splitlines()) - 1
    assert "<html" in files["run.html"].read_text()
    sampled = [json.loads(line)["board"] for line in files["live.jsonl"].read_text().splitlines()]
    assert {rack[1].name} | left == set(sampled)
    assert rack[1].name not in sampled[-2:]
    recording = read_recording(tmp_path / "recorded")
    assert left == {rank.board for rank in recording.plan.ranks}
    assert 10 == len(recording.info.numbers)


def await_lines(launcher: Launcher, file: Path, count: int) -> None:
    """Wait until a run has written so many lines."""
    deadline = time.monotonic() + 60
    while not file.exists() or len(file.read_text().splitlines()) < count:
        assert launcher.process.poll() is None, launcher.errors()
        assert time.monotonic() < deadline, launcher.errors()
        time.sleep(0.05)


def test_frames_that_fail_lose_no_board(rack: Boards, tmp_path: Path) -> None:
    folder = survivable(rack, poisoned_model(tmp_path).parent, len(LAYERS))
    assert 0 == deploy(rack, folder).code
    pipeline = rankslice.open(folder, survive=True, ssh_config=rack.ssh_config)
    with served(pipeline) as server:
        check_a_thousand(server.http)
        assert ("ready", 0, frozenset()) == (pipeline.state, pipeline.restarts, pipeline.lost)
        assert 1000 == pipeline.completed
    assert pipeline.error is None

    np.savez(tmp_path / "frames.npz", i=np.stack([frame(number) for number in range(40)]))
    given = ("--survive", "--input", tmp_path / "frames.npz", "--ssh-config", rack.ssh_config)
    ended = command("run", folder, *given, "--skip-failed", "--results", tmp_path / "r.bin")
    assert "36 frames, " in ended.out
    assert "4 frames failed, without results:" in ended.out
    assert (0, "") == (ended.code, ended.err)
    computed = [number for number in range(40) if number % 10]
    results = read_results(tmp_path / "r.bin")
    assert computed == results.numbers
    assert [[result(number)] for number in computed] == results.values(0).tolist()
    assert [] == [line for board in rack for line in of_job(board)]
