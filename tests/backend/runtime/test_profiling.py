"""Sub-models measured by the program that boards get, here as a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import psutil
import pytest
from onnx import TensorProto, helper
from real_jobs import give_sensors

from rankslice.backend.boards.accelerator import (
    Accelerator,
    InputOfFrame,
    SubModel,
    Timings,
)
from rankslice.backend.boards.board_packages import read_package
from rankslice.backend.boards.login import Login
from rankslice.backend.boards.ssh import BoardShell
from rankslice.backend.package import write_profiler_package
from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.job import Rank
from rankslice.backend.runtime.system.cores import core_kinds, core_numbers
from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import ByteRange, Tensor

CORE = min(os.sched_getaffinity(0))
RANK = Rank(0, f"local_cpu{CORE}", "local", "localhost", "cpu", (CORE,), "onnxruntime")
SLEEPING = replace(RANK, engine="null", options=(("sleep_ms", "3"),))
X, Y = Tensor("x", "float32", (1, 1000)), Tensor("y", "float32", (1, 1000))
RUNS = Timings(min_runs=3, min_s=0.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "add",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, Y.shape)],
        [helper.make_tensor("w", TensorProto.FLOAT, [1, 1000], [1.0] * 1000)],
    )
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)
    return path


def accelerator(folder: Path, model: Path, rank: Rank = RANK) -> Accelerator:
    shell = BoardShell(Login("local", "localhost"))
    write_profiler_package(folder, "local", [rank], [model])
    return Accelerator(shell, read_package(folder, "local"), rank, [model])


@pytest.fixture
def opened(tmp_path: Path, model: Path) -> Iterator[Accelerator]:
    with accelerator(tmp_path, model) as found:
        yield found


def whole(model: Path) -> SubModel:
    """Return the model in two pieces: bytes, and a range of the file."""
    content, half = model.read_bytes(), model.stat().st_size // 2
    pieces = [content[:half], ByteRange(model, half, len(content) - half)]
    return SubModel({"m.onnx": pieces}, (X,), (Y,))


def test_a_sub_model_is_put_together_and_run(opened: Accelerator, model: Path) -> None:
    reading = opened.measure(whole(model), RUNS)
    assert reading.problem is None
    assert 3 == len(reading.samples_ns)
    assert min(reading.samples_ns) > 0
    assert reading.memory_bytes is not None
    assert reading.energy_uj is None


ROWS = """<ir_version: 8, opset_import: ["" : 17]>
    rows (float[n,4] x, int64[2] sizes) => (float[m,2] y) { y = Reshape(x, sizes) }"""


@pytest.mark.parametrize("bound", [6, pytest.param(5, marks=pytest.mark.ci)])
def test_open_sizes_are_those_of_frames_and_values_that_are_sizes_are_kept(
    opened: Accelerator, bound: int
) -> None:
    inputs = Tensor("x", "float32", (3, 4), ("n", "")), Tensor("sizes", "int64", (2,))
    outputs = (Tensor("y", "float32", (bound, 2), ("m", "")),)
    files = {"m.onnx": [onnx.parser.parse_model(ROWS).SerializeToString()]}
    frames = tuple(
        (InputOfFrame((rows, 4)), InputOfFrame((2,), np.array([2 * rows, 2]).tobytes()))
        for rows in (0, 3)
    )
    # More rows than there is room for come of values that a layer might never make.
    reading = opened.measure(SubModel(files, inputs, outputs, frames), RUNS)
    assert (None, 3) == (reading.problem, len(reading.samples_ns))
    random = opened.measure(SubModel(files, inputs, outputs), RUNS)
    assert "Reshape" in (random.problem or "")


@pytest.mark.ci
def test_it_is_run_until_there_are_enough_times(tmp_path: Path, model: Path) -> None:
    with accelerator(tmp_path, model, SLEEPING) as opened:
        samples = opened.measure(
            whole(model), Timings(min_runs=2, min_s=0.03, max_runs=50)
        ).samples_ns
    assert all(nanoseconds >= 3e6 for nanoseconds in samples)
    assert 2 <= len(samples) <= 10


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """A monitor that tells a power of five watts."""
    chip = tmp_path / "sys" / "class" / "hwmon" / "hwmon0"
    chip.mkdir(parents=True)
    (chip / "name").write_text("ina219")
    (chip / "power1_input").write_text("5000000")
    return chip


def test_energy_is_what_the_boards_sensor_tells(tmp_path: Path, model: Path, chip: Path) -> None:
    with accelerator(tmp_path, model, SLEEPING) as opened:
        give_sensors(tmp_path, tmp_path / "sys")
        board = opened.greet(idle_s=0.05).board
        assert ("hwmon ina219 power1_input", 5000) == (board.sensor, board.idle_mw)
        energy_uj = opened.measure(whole(model), replace(RUNS, energy_s=0.1)).energy_uj
        assert energy_uj is not None
        assert 0.003 * 5e6 < energy_uj < 0.010 * 5e6


@pytest.mark.ci
def test_energy_of_a_sensor_that_goes_wrong_is_absent(
    tmp_path: Path, model: Path, chip: Path
) -> None:
    with accelerator(tmp_path, model, SLEEPING) as opened:
        give_sensors(tmp_path, tmp_path / "sys")
        (chip / "power1_input").write_text("-1")
        assert opened.greet(idle_s=0.05).board.idle_mw is None
        reading = opened.measure(whole(model), replace(RUNS, energy_s=0.05))
        assert (None, None) == (reading.energy_uj, reading.problem)


def test_the_greeting_tells_of_engine_and_board(opened: Accelerator) -> None:
    onnxruntime = load_onnxruntime()
    greeting = opened.greet()
    assert f"onnxruntime {onnxruntime.__version__}" == greeting.engine_version
    assert greeting.rank_bytes > 10_000_000
    assert os.cpu_count() == len(greeting.board.cores)


def test_what_the_engine_refuses_is_told_and_the_next_one_measured(
    opened: Accelerator, model: Path
) -> None:
    refused = opened.measure(SubModel({"m.onnx": [b"no model"]}, (X,), (Y,)), RUNS)
    assert refused.refused
    assert "m.onnx: onnxruntime cannot load it" in (refused.problem or "")
    assert opened.measure(whole(model), RUNS).samples_ns


@pytest.mark.ci
def test_an_engine_that_hangs_is_given_up(tmp_path: Path, model: Path) -> None:
    rank = replace(SLEEPING, options=(("sleep_ms", "60000"),))
    with accelerator(tmp_path, model, rank) as opened:
        opened.greet()
        reading = opened.measure(whole(model), RUNS, timeout_s=1.0)
    assert ("no answer within 1 s", False) == (reading.problem, reading.refused)


def test_an_engine_that_crashes_is_told(tmp_path: Path, model: Path) -> None:
    with accelerator(tmp_path, model, SLEEPING) as opened:
        engine = tmp_path / "runtime" / "engines" / "null_engine.py"
        crash = "\ndef _crash(*arguments):\n    import os\n    os.kill(os.getpid(), 11)\n"
        engine.write_text(engine.read_text() + crash + "NullEngine.run = _crash\n")
        reading = opened.measure(whole(model), RUNS)
    assert "the engine was killed or crashed (SIGSEGV)" == reading.problem


def test_another_one_computes_until_told_otherwise(tmp_path: Path, model: Path) -> None:
    with accelerator(tmp_path, model, SLEEPING) as opened:
        opened.greet()
        assert "" == opened.compute(whole(model))
        (program,) = [p for p in psutil.Process().children() if "runtime.profiling" in p.cmdline()]
        assert 1 == len(program.children())
        opened.rest()
        assert [] == program.children()


def test_nothing_is_left_when_it_ends(tmp_path: Path, model: Path) -> None:
    with accelerator(tmp_path, model, SLEEPING) as opened:
        opened.greet()
        assert "" == opened.compute(whole(model))
        processes = psutil.Process().children(recursive=True)
    gone, alive = psutil.wait_procs(processes, timeout=5)
    assert (True, []) == (bool(gone), alive)


def test_cores_that_the_board_lacks_are_told(tmp_path: Path, model: Path) -> None:
    rank = replace(RANK, cores=(8000,))
    with (
        accelerator(tmp_path, model, rank) as opened,
        pytest.raises(RankSliceError, match="this board has no core 8000; the process may use"),
    ):
        opened.greet()


BIG_AND_LITTLE = """processor\t: 0
BogoMIPS\t: 52.00
CPU implementer\t: 0x41
CPU part\t: {}

processor\t: 1
BogoMIPS\t: 48.00
CPU implementer\t: 0x41
CPU part\t: {}
"""


@pytest.mark.parametrize(
    ("parts", "capacities", "clocks", "are_alike"),
    [
        (("0xd05", "0xd05"), (446, 446), (1_800_000, 1_800_000), True),
        (("0xd05", "0xd05"), (None, None), (None, None), True),
        (("0xd05", "0xd0b"), (None, None), (None, None), False),
        (("0xd0b", "0xd0b"), (1024, 900), (None, None), False),
        (("0xd0b", "0xd0b"), (1024, 1024), (2_400_000, 1_800_000), False),
    ],
)
def test_cores_are_alike_if_the_board_tells_the_same_of_their_model_capacity_and_clocks(
    parts: tuple[str, str],
    capacities: tuple[int | None, int | None],
    clocks: tuple[int | None, int | None],
    are_alike: bool,
    tmp_path: Path,
) -> None:
    for number in range(2):
        core = tmp_path / f"sys/devices/system/cpu/cpu{number}"
        (core / "cpufreq").mkdir(parents=True)
        if capacities[number]:
            (core / "cpu_capacity").write_text(f"{capacities[number]}\n")
        if clocks[number]:
            (core / "cpufreq/cpuinfo_max_freq").write_text(f"{clocks[number]}\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(BIG_AND_LITTLE.format(*parts))
    kinds = core_kinds(2, tmp_path)
    assert "0xd0" in kinds[0]
    assert are_alike == (kinds[0] == kinds[1])


def test_numbers_of_cores_may_have_gaps(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        (tmp_path / f"sys/devices/system/cpu/cpu{number}").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/cpufreq").mkdir()
    assert [0, 2, 10] == core_numbers(tmp_path)
    (tmp_path / "sys/devices/system/cpu/cpu10/cpu_capacity").write_text("1024\n")
    assert "1024" in core_kinds(core_numbers(tmp_path)[-1] + 1, tmp_path)[10]
