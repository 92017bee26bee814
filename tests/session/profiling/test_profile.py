"""``rankslice profile`` on this machine, with engines that compute and others that sleep."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import onnx
import psutil
import pytest
from command_line import COMMAND, succeed
from real_jobs import chain

from rankslice.backend.runtime.version import RUNTIME_VERSION
from rankslice.exploration.times.span_times import Slice, first_spans, is_long
from rankslice.framework.profile import Profile, profile_to_json
from rankslice.session.building.planning import read_profile
from rankslice.session.profiling.profile_options import ProfileOptions
from rankslice.session.profiling.profiler import Profiler, profile_model
from rankslice.session.profiling.span_bench import Listener
from rankslice.session.profiling.time_limit import Expectation, TimeLimit

DIGITS = Path(__file__).parents[3] / "models" / "digits.onnx"
CORE = min(os.sched_getaffinity(0))
KEY = f"local_cpu{CORE}"


def measurings(layers: int) -> int:
    """Return how often a span is measured in all, of a model of so many layers."""
    return len(first_spans(layers)) + 2 * sum(is_long(s, layers) for s in first_spans(layers))


def computing_now() -> list[str]:
    """Return the programs that measure, or compute meanwhile."""
    lines = [" ".join(process.cmdline()) for process in psutil.Process().children()]
    return [line for line in lines if "runtime.profiling" in line]


class Progress(Listener):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.spans = 0
        self.expected: list[tuple[Expectation, int]] = []
        self.interrupt_after: int | None = None

    def note(self, text: str) -> None:
        self.notes.append(text)

    def expect(self, what: Expectation) -> None:
        self.expected.append((what, self.spans))

    def measured(self, key: str) -> None:
        self.spans += 1
        if self.spans == self.interrupt_after:
            raise KeyboardInterrupt


def sleeping(folder: Path, layers: int, boards: int = 1) -> tuple[Path, Path]:
    """Return a model, and a platform of boards like this machine whose CPUs sleep for 2 ms."""
    onnx.save(chain(layers), folder / "model.onnx")
    cpu = {"engine": "null", "options": {"sleep_ms": "2"}}
    names = [f"board{number}" for number in range(1, boards + 1)]
    specs = {name: {"host": "localhost", "cores": [CORE], "cpu": cpu} for name in names}
    (folder / "platform.json").write_text(json.dumps({"boards": specs}))
    return folder / "model.onnx", (folder / "platform.json").rename(folder / "platform.yaml")


def profiled(
    folder: Path, progress: Progress | None = None, layers: int = 3, **options: object
) -> Profile:
    """Return the profile of a chain of sleeping layers, also in ``profile.json``."""
    model, platform = sleeping(folder, layers)
    out = folder / "profile.json"
    with Profiler(model, platform, out, ProfileOptions(**options), listener=progress) as profiler:  # type: ignore[arg-type]
        profiler.measure_first()
    return read_profile(out)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a chain of three sleeping layers and its profile."""
    folder = tmp_path_factory.mktemp("measured")
    profiled(folder)
    return folder


@pytest.fixture
def known(measured: Path, tmp_path: Path) -> Profile:
    """The profile of a chain of three sleeping layers, which ``tmp_path`` has, too."""
    shutil.copytree(measured, tmp_path, dirs_exist_ok=True)
    return read_profile(tmp_path / "profile.json")


needs_two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two cores, which are alike on most machines"
)


@pytest.mark.ci
@needs_two_cores
def test_cores_that_the_board_describes_alike_are_measured_once(tmp_path: Path) -> None:
    model, platform = sleeping(tmp_path, 3)
    cores = sorted(os.sched_getaffinity(0))[:2]
    specs = json.loads(platform.read_text())
    specs["boards"]["board1"]["cores"] = cores
    platform.write_text(json.dumps(specs))
    progress = Progress()
    with Profiler(
        model, platform, tmp_path / "profile.json", ProfileOptions(per_core=True), listener=progress
    ) as profiler:
        profile_model(profiler, refined=False)
        kinds = profiler.problem(profiler.times()).kinds
    (kind,) = read_profile(tmp_path / "profile.json").kinds
    keys = tuple(f"board1_cpu{core}" for core in cores)
    assert (keys, keys[:1], keys[1:]) == (kind.keys, (kind.key,), kind.neighbours)
    assert (measurings(3), 1) == (progress.spans, len(kinds))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile of the digit classifier on a core of this machine, by the command line."""
    folder = tmp_path_factory.mktemp("digits")
    out, summary = folder / "p.json", folder / "s.json"
    ended = succeed(
        *("profile", DIGITS, "--accelerators", KEY, "--alone", "-o", out, "--json", summary)
    )
    assert "the fastest pipeline has 1 slice" in ended.out
    return out


@pytest.mark.ci
def test_each_layer_and_each_pair_of_the_classifier_is_measured(digits: Path) -> None:
    profile = read_profile(digits)
    (kind,) = profile.kinds
    spans = {(span.first, span.last): span for span in kind.spans}
    assert set(first_spans(len(profile.model.layers))) <= spans.keys()
    assert all(len(span.samples_ns) >= 5 and span.memory_bytes is not None for span in kind.spans)
    assert all(span.energy_uj != 0 for span in kind.spans)


@pytest.mark.ci
def test_the_classifier_as_a_whole_takes_less_than_its_layers_one_by_one(digits: Path) -> None:
    summary = json.loads((digits.parent / "s.json").read_text())
    (kind,) = summary["kinds"]
    assert kind["one_by_one_s"] > 1.2 * kind["model_s"]
    assert [KEY] == kind["keys"]


@pytest.mark.ci
def test_the_layers_are_those_of_the_model(digits: Path) -> None:
    assert ("conv1", "softmax") == (
        (layers := read_profile(digits).model.layers)[0],
        layers[-1],
    )


def test_what_is_known_is_not_measured_again(known: Profile, tmp_path: Path) -> None:
    progress = Progress()
    assert known == profiled(tmp_path, progress)
    assert (0, []) == (progress.spans, progress.notes)


@pytest.mark.ci
def test_fresh_measures_everything_anew(known: Profile, tmp_path: Path) -> None:
    progress = Progress()
    after = profiled(tmp_path, progress, fresh=True)
    assert measurings(3) == progress.spans
    assert known.kinds[0].spans[0].samples_ns != after.kinds[0].spans[0].samples_ns


@pytest.mark.ci
def test_again_measures_everything_once_more_and_keeps_what_is_known(
    known: Profile, tmp_path: Path
) -> None:
    progress = Progress()
    after = profiled(tmp_path, progress, again=True)
    assert measurings(3) == progress.spans
    for old, new in zip(known.kinds[0].spans, after.kinds[0].spans, strict=True):
        assert 2 * len(old.moments) == len(new.moments)
        assert old.samples_ns == new.samples_ns[: len(old.samples_ns)]


@pytest.mark.ci
def test_again_has_no_time_for_all_and_misses_nothing_that_is_known(tmp_path: Path) -> None:
    before = profiled(tmp_path, layers=5)
    model, platform = sleeping(tmp_path, 5)
    with Profiler(
        model, platform, tmp_path / "profile.json", ProfileOptions(again=True)
    ) as profiler:
        profiler.measure_first(TimeLimit(0))
        assert () == profiler.left_out()
    added = [
        len(new.moments) - len(old.moments)
        for old, new in zip(before.kinds[0].spans, profiler.profile.kinds[0].spans, strict=True)
    ]
    assert {0: len(added) - 2, 1: 2} == {moments: added.count(moments) for moments in (0, 1)}


@pytest.mark.ci
@pytest.mark.usefixtures("known")
def test_another_model_is_measured_anew_and_that_is_said(tmp_path: Path) -> None:
    progress = Progress()
    after = profiled(tmp_path, progress, layers=2)
    assert 2 == len(after.model.layers)
    assert (
        f"{tmp_path}/profile.json: the model has changed since it was measured" in progress.notes[0]
    )


@pytest.mark.ci
@pytest.mark.usefixtures("known")
def test_another_version_of_the_engine_is_measured_anew_and_that_is_said(tmp_path: Path) -> None:
    out, progress = tmp_path / "profile.json", Progress()
    out.write_text(
        out.read_text().replace('"engine_version": "null ', '"engine_version": "null 0.')
    )
    after = profiled(tmp_path, progress)
    assert measurings(3) == progress.spans
    version = after.kinds[0].engine_version.removeprefix("null ")
    assert f"it has null {version}, and had null 0.{version}; measuring again" in progress.notes[0]
    assert str(RUNTIME_VERSION) == version


@pytest.mark.ci
@pytest.mark.usefixtures("known")
def test_other_settings_of_the_clocks_are_measured_anew_and_that_is_said(tmp_path: Path) -> None:
    out, progress = tmp_path / "profile.json", Progress()
    out.write_text(out.read_text().replace('"most_khz": null', '"most_khz": 123', 1))
    if '"most_khz": 123' not in out.read_text():
        pytest.skip("this machine tells its clocks, and the test changes what is not told")
    profiled(tmp_path, progress)
    assert "the settings of its clocks changed; measuring again" in progress.notes[0]


@pytest.mark.ci
def test_long_slices_are_measured_at_three_moments(tmp_path: Path) -> None:
    spans = profiled(tmp_path, layers=17).kinds[0].spans
    moments = {is_long((span.first, span.last), 17): set() for span in spans}
    for span in spans:
        moments[is_long((span.first, span.last), 17)].add(len(span.moments))
    assert {True: {3}, False: {1}} == moments


@pytest.mark.ci
def test_how_long_it_will_take_is_told_before_most_is_measured(tmp_path: Path) -> None:
    progress = Progress()
    begin = time.monotonic()
    profiled(tmp_path, progress, layers=12)
    taken = time.monotonic() - begin
    ((expected, measured_before),) = progress.expected
    assert (measurings(12) - 2, 2) == (expected.spans, measured_before)
    assert 0.4 * taken < expected.seconds < 1.6 * taken


@pytest.mark.ci
def test_when_time_is_up_the_most_telling_slices_were_measured_and_the_rest_is_named(
    tmp_path: Path,
) -> None:
    model, platform = sleeping(tmp_path, 40)
    with Profiler(model, platform, tmp_path / "profile.json") as profiler:
        profiler.measure_first(TimeLimit(1.0))
        (left_out,) = profiler.left_out()
        assert profiler.times().span_s(0, 0, 39) >= 2e-3
    spans = first_spans(40)
    known = {(s.first, s.last) for s in read_profile(tmp_path / "profile.json").kinds[0].spans}
    assert len(spans) == left_out.of == len(known) + len(left_out.spans)
    ends = {(0, 0), (0, 39)}
    assert known - ends == set([s for s in spans if s not in ends][: len(known - ends)])


@pytest.mark.ci
def test_the_next_profile_measures_what_there_was_no_time_for(tmp_path: Path) -> None:
    model, platform = sleeping(tmp_path, 5)
    for limit in (TimeLimit(0), TimeLimit()):
        with Profiler(model, platform, tmp_path / "profile.json") as profiler:
            profiler.measure_first(limit)
            left_out = profiler.left_out()
    assert () == left_out
    assert len(first_spans(5)) == len(profiler.profile.kinds[0].spans)


def test_the_command_line_says_how_long_it_will_take_and_what_was_left_out(tmp_path: Path) -> None:
    model, platform = sleeping(tmp_path, 40)
    out, summary = tmp_path / "p.json", tmp_path / "s.json"
    ended = succeed(
        *("profile", model, "--platform", platform, "-o", out, "--json", summary),
        *("--seconds", "1"),
    )
    assert "slices will take about " in ended.err
    (left_out,) = json.loads(summary.read_text())["left_out"]
    assert left_out["of"] == len(first_spans(40))
    counts = f"{left_out['spans']} of {left_out['of']} slices were never measured"
    assert f"time limit reached: {counts}" in ended.out
    known = left_out["of"] - left_out["spans"]
    assert (
        f"board1_cpu{CORE}: the times of {left_out['spans']} of {left_out['of']} slices are"
        f" extrapolated from the {known} that were measured: predicted rates may be far too high,"
        " and a mapping that looks faster may be slower"
    ) in ended.out


def test_an_interrupt_keeps_what_was_measured_and_the_next_run_goes_on_there(
    tmp_path: Path,
) -> None:
    progress = Progress()
    progress.interrupt_after = 2
    with pytest.raises(KeyboardInterrupt):
        profiled(tmp_path, progress)
    assert 2 == len(read_profile(tmp_path / "profile.json").kinds[0].spans)
    progress = Progress()
    profiled(tmp_path, progress)
    assert measurings(3) - 2 == progress.spans


@pytest.mark.ci
def test_ctrl_c_keeps_what_was_measured_and_says_so(tmp_path: Path) -> None:
    model, platform = sleeping(tmp_path, 24)
    out = tmp_path / "p.json"
    process = subprocess.Popen(
        [*COMMAND, "profile", model, "--platform", platform, "-o", out],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for_a_measurement(process)
        os.killpg(process.pid, signal.SIGINT)  # as the terminal does
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert 128 + signal.SIGINT == process.returncode
    kept = f"the measurements so far are in {out}: run the same command to continue\n"
    assert errors.endswith(kept)
    assert 0 < len(read_profile(out).kinds[0].spans) < len(first_spans(24))
    assert {"model.onnx", "platform.yaml", "p.json"} == {path.name for path in tmp_path.iterdir()}


def wait_for_a_measurement(process: subprocess.Popen[str]) -> None:
    """Wait until a command has measured a span; each takes a process of its own."""
    seen: set[int] = set()
    deadline = time.monotonic() + 30
    while len(seen) < 5:  # the program that measures, what it learns of the engine, and spans
        assert process.poll() is None
        assert time.monotonic() < deadline, "nothing is measured"
        seen |= {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
        time.sleep(0.002)


def test_equal_boards_are_measured_once(tmp_path: Path) -> None:
    model, platform = sleeping(tmp_path, 2, boards=3)
    progress = Progress()
    with Profiler(model, platform, None, listener=progress) as profiler:
        profiler.measure_first()
    (kind,) = profiler.profile.kinds
    assert tuple(f"board{number}_cpu{CORE}" for number in (1, 2, 3)) == kind.keys
    assert measurings(2) == progress.spans


@pytest.mark.ci
@pytest.mark.usefixtures("known")
def test_a_profile_of_one_accelerator_keeps_what_is_there_of_others(tmp_path: Path) -> None:
    with Profiler(
        tmp_path / "model.onnx",
        "local",
        tmp_path / "profile.json",
        ProfileOptions(accelerators=(KEY,), alone=True),
    ) as profiler:
        profiler.measure_first()
    kinds = read_profile(tmp_path / "profile.json").kinds
    assert {KEY, f"board1_cpu{CORE}"} == {kind.key for kind in kinds}


def test_the_best_plan_takes_what_is_expected_of_it(tmp_path: Path) -> None:
    model, platform = sleeping(tmp_path, 3)
    with Profiler(model, platform, None) as profiler:
        refinement = profile_model(profiler)
    assert refinement is not None
    assert ((Slice(0, 0, 2),), True) == (refinement.rounds[-1].slices, refinement.reached)
    assert 2e-3 <= refinement.times.span_s(0, 0, 2) < 5e-3


def test_a_slice_is_measured_once_more_when_it_is_asked_for(tmp_path: Path) -> None:
    model, platform = sleeping(tmp_path, 3)
    with Profiler(model, platform, None) as profiler:
        first, second = (profiler.measure_slices([Slice(0, 0, 1)]) for _ in range(2))
        (span,) = profiler.profile.kinds[0].spans
    assert len(span.samples_ns) >= 10
    assert 2e-3 <= min(*first, *second)


def test_other_cores_compute_meanwhile_unless_told_otherwise(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("this machine has one core only")
    keys = [f"local_cpu{core}" for core in cores[:2]]
    with Profiler(DIGITS, "local", None, ProfileOptions(accelerators=tuple(keys))) as profiler:
        (kind,) = profiler.profile.kinds
        assert (keys[1],) == kind.neighbours
        profiler.measure_slices([Slice(0, 0, 1)])
        assert 2 == len(computing_now())
    with Profiler(
        DIGITS, "local", None, ProfileOptions(accelerators=tuple(keys), alone=True)
    ) as profiler:
        assert () == profiler.profile.kinds[0].neighbours


def test_a_profile_is_written_in_one_step(measured: Path) -> None:
    profile = measured / "profile.json"
    assert profile_to_json(read_profile(profile)) == profile.read_text()
    written = {"model.onnx", "platform.yaml", "profile.json"}
    assert written == {path.name for path in measured.iterdir()}
