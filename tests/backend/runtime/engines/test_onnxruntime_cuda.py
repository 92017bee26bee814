"""Frames on onnxruntime's CUDA provider, with a driver and a provider of the test's."""

from __future__ import annotations

import mmap
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from facts import facts_of_onnx
from in_process import run_in_process
from jobs import build_folder, figure_2, write_job
from numpy.typing import NDArray
from toy_cuda import NOT_CAPTURED, NOT_PARTITIONED, ToyDriver, ToyOnnxRuntime
from toys import toy_library

from rankslice.backend.runtime.engines import Engine, EngineSettings, cuda_stream, open_engine
from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.figures.acceleration import Acceleration, total
from rankslice.backend.runtime.figures.rank_figures import RankFigures
from rankslice.backend.runtime.job import Tensor, typed_view
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.pipeline.slots import Ring
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.session.build_folder import read_plan

ALL = ("device buffers", "CUDA graph", "pinned slots", "blocking sync")

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
PRODUCT = f"""{HEAD} g (float[4,4096] a, float[4,4096] b)
  => (float[4,4096] sum, float[4,4096] product) {{
  sum = Add (a, b)
  product = Mul (a, b)
}}"""
A, B, SUM, TIMES = (Tensor(name, "float32", (4, 4096)) for name in ("a", "b", "sum", "product"))
X, Y = (Tensor(name, "float32", (1, 8)) for name in ("x", "y"))

pytestmark = pytest.mark.filterwarnings("error")


@dataclass
class Gpu:
    """The toy, and the engines that a test opens on it."""

    driver: ToyDriver
    onnxruntime: ToyOnnxRuntime
    folder: Path
    engines: list[Engine] = field(default_factory=list)

    def load(
        self,
        text: str = PRODUCT,
        inputs: tuple[Tensor, ...] = (A, B),
        outputs: tuple[Tensor, ...] = (SUM, TIMES),
        *,
        exact: bool = False,
        allow_fallback: bool = False,
        **options: str,
    ) -> Engine:
        model = onnx.parser.parse_model(text)
        onnx.save(model, self.folder / "part.0.onnx")
        options = {"provider": "CUDA", **options}
        settings = EngineSettings(
            exact=exact,
            options=options,
            accelerator="gpu",
            allow_fallback=allow_fallback,
            facts=facts_of_onnx(model, inputs),
        )
        engine = open_engine("onnxruntime", settings)
        self.engines.append(engine)
        engine.load(self.folder / "part.0.onnx", inputs, outputs)
        return engine


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return toy_library("toy_cuda.c", tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def gpu(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A board with the toy GPU; what engines got from the driver must be given back."""
    board = Gpu(ToyDriver(library), ToyOnnxRuntime(load_onnxruntime()), tmp_path)
    monkeypatch.setattr(cuda_stream, "LIBRARY", library)
    monkeypatch.setitem(sys.modules, "onnxruntime", board.onnxruntime)
    board.driver.reset()
    yield board
    for engine in board.engines:
        engine.close()
    board.driver.fail("-")
    assert 0 == board.driver.held()


def slots(spec: Tensor, depth: int = 3) -> tuple[NDArray[Any], ...]:
    return Ring(spec, depth, 1).slots


def accelerated(engine: Engine) -> Acceleration:
    acceleration = engine.acceleration()
    assert acceleration is not None
    return acceleration


def check_frames(engine: Engine, frames: int = 7) -> None:
    """Run frames over rings of several slots, and compare the results."""
    rings = [slots(spec, depth) for spec, depth in ((A, 3), (B, 2), (SUM, 4), (TIMES, 1))]
    for frame in range(frames):
        a, b, total, product = (ring[frame % len(ring)] for ring in rings)
        a[...], b[...] = frame, 10 + frame
        engine.run([a, b], [total, product])
        assert (2 * frame + 10, frame * (10 + frame)) == (total.min(), product.max())


def test_a_graph_serves_all_slots(gpu: Gpu) -> None:
    engine = gpu.load()
    check_frames(engine)
    (session,) = gpu.onnxruntime.sessions
    assert (2 + 7, 7) == (session.computed, session.replayed)
    assert (ALL, {}) == (accelerated(engine).uses, accelerated(engine).without)


def test_a_frame_is_queued_as_a_whole_and_waited_for_once(gpu: Gpu) -> None:
    engine = gpu.load()
    places = [slots(spec)[0] for spec in (A, B, SUM, TIMES)]
    engine.run(places[:2], places[2:])
    gpu.driver.calls()
    engine.run(places[:2], places[2:])
    assert "<<>>w" == gpu.driver.calls()


def test_the_gpu_is_told_how_to_wait_before_it_is_opened(gpu: Gpu) -> None:
    gpu.load()
    assert gpu.driver.calls().startswith("ifcs")
    assert gpu.driver.sleeps()


def test_a_gpu_that_is_open_already_is_told_no_more_than_once(gpu: Gpu) -> None:
    gpu.load()
    second = gpu.load()
    assert 1 == gpu.driver.calls().count("f")
    assert ALL == accelerated(second).uses


def test_a_graph_is_captured_anew_in_another_thread(gpu: Gpu) -> None:
    engine = gpu.load()
    check_frames(engine, 1)
    thread = threading.Thread(target=check_frames, args=(engine, 5))
    thread.start()
    thread.join()
    (session,) = gpu.onnxruntime.sessions
    assert (2 + 1 + 2 + 5, 6) == (session.computed, session.replayed)


RANDOM = f"""{HEAD} g (float[1,8] x) => (float[1,8] y) {{
  noise = RandomNormalLike (x)
  y = Add (x, noise)
}}"""
NEGATIVE = f"{HEAD} g (float[{{0}}] x) => (float[{{0}}] y) {{{{ y = Neg (x) }}}}"
BRANCH = f"""{HEAD} g (float[1,8] x) => (float[1,8] y) <bool c = {{1}}> {{
  y = If (c) <
    then_branch = t () => (float[1,8] a) {{ a = Neg (x) }},
    else_branch = e () => (float[1,8] b) {{ b = Relu (x) }}
  >
}}"""


@pytest.mark.parametrize(
    ("text", "reason"), [(RANDOM, "it draws random numbers"), (BRANCH, "it has If")]
)
def test_what_must_not_be_repeated_is_no_graph(gpu: Gpu, text: str, reason: str) -> None:
    engine = gpu.load(text, (X,), (Y,))
    engine.run([slots(X)[0]], [slots(Y)[0]])
    (session,) = gpu.onnxruntime.sessions
    assert (1, 0) == (session.computed, session.replayed)
    assert {"CUDA graph": reason} == accelerated(engine).without


def test_exact_runs_are_no_graph(gpu: Gpu) -> None:
    engine = gpu.load(exact=True)
    check_frames(engine)
    assert {"CUDA graph": "--verify exact"} == accelerated(engine).without
    assert 0 == gpu.onnxruntime.sessions[-1].replayed


def test_a_graph_that_cannot_be_captured_is_run_without(gpu: Gpu) -> None:
    gpu.onnxruntime.can_capture = False
    engine = gpu.load()
    check_frames(engine)
    assert {"CUDA graph": NOT_CAPTURED} == accelerated(engine).without
    assert "e" in gpu.driver.calls()
    first, second = gpu.onnxruntime.sessions
    assert "enable_cuda_graph" in first.options
    assert "enable_cuda_graph" not in second.options


def test_an_error_of_a_later_run_is_no_failed_capture(gpu: Gpu) -> None:
    engine = gpu.load()
    check_frames(engine)
    gpu.driver.fail("w", 700)
    with pytest.raises(JobError) as error:
        check_frames(engine)
    assert "cuStreamSynchronize: CUDA_ERROR_OF_TOY (700)" == str(error.value)
    assert 1 == len(gpu.onnxruntime.sessions)


def test_copies_are_left_to_onnxruntime_where_some_operators_are_on_the_cpu(gpu: Gpu) -> None:
    gpu.onnxruntime.left = {"Mul"}
    engine = gpu.load(allow_fallback=True)
    check_frames(engine)
    assert "<" not in gpu.driver.calls()
    acceleration = accelerated(engine)
    graph = f"part.0.onnx: onnxruntime cannot load it: {NOT_PARTITIONED}"
    left = {"device buffers": "on the CPU: Mul", "pinned slots": "on the CPU: Mul"}
    assert ({"CUDA graph": graph, **left}, ("blocking sync",)) == (
        acceleration.without,
        acceleration.uses,
    )


def test_what_must_run_on_the_gpu_and_does_not_still_ends_the_job(gpu: Gpu) -> None:
    gpu.onnxruntime.left = {"Mul"}
    with pytest.raises(JobError, match="CUDA runs 1 of 2 operators, but not Mul"):
        gpu.load()


def test_an_onnxruntime_that_takes_no_stream_copies_itself(gpu: Gpu) -> None:
    gpu.onnxruntime.knows_streams = False
    engine = gpu.load()
    check_frames(engine)
    acceleration = accelerated(engine)
    assert ("blocking sync",) == acceleration.uses
    assert "Unknown provider option: user_compute_stream." in acceleration.without["device buffers"]


@pytest.mark.parametrize("left", [set(), {"Mul"}])
def test_an_onnxruntime_that_does_not_count_operators_is_asked_to_refuse(
    gpu: Gpu, left: set[str]
) -> None:
    gpu.onnxruntime.tells_nodes = False
    gpu.onnxruntime.left = left
    if left:
        with pytest.raises(JobError, match="CUDA does not run all operators"):
            gpu.load()
    else:
        engine = gpu.load(exact=True)
        check_frames(engine)
        assert ("device buffers", "pinned slots", "blocking sync") == accelerated(engine).uses


def test_where_nobody_knows_what_runs_on_the_cpu_copies_are_left_to_onnxruntime(gpu: Gpu) -> None:
    gpu.onnxruntime.tells_nodes = False
    engine = gpu.load(exact=True, allow_fallback=True)
    check_frames(engine)
    assert "does not report what runs on the CPU" in accelerated(engine).without["device buffers"]


def test_slots_that_cannot_be_page_locked_go_through_memory_that_is(gpu: Gpu) -> None:
    gpu.driver.fail("r")
    engine = gpu.load()
    check_frames(engine)
    acceleration = accelerated(engine)
    reason = "a: cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY (2)"
    assert {"pinned slots": reason} == acceleration.without
    assert 4 == gpu.driver.calls().count("h")


def test_a_ring_is_page_locked_at_once_and_for_all_engines_of_a_process(gpu: Gpu) -> None:
    first, second = gpu.load(), gpu.load()
    rings = [slots(spec) for spec in (A, B, SUM, TIMES)]
    gpu.driver.calls()
    for frame in range(3):
        for engine in (first, second):
            a, b, total, product = (ring[frame] for ring in rings)
            engine.run([a, b], [total, product])
    assert 4 == gpu.driver.calls().count("r")
    first.close()
    assert "R" not in gpu.driver.calls()
    second.close()
    assert 4 == gpu.driver.calls().count("R")


def test_slots_of_small_tensors_go_through_memory_that_is_page_locked(gpu: Gpu) -> None:
    engine = gpu.load(NEGATIVE.format("1,8"), (X,), (Y,))
    source, target = slots(X)[0], slots(Y)[0]
    source[...] = 3
    engine.run([source], [target])
    assert [[-3.0] * 8] == target.tolist()
    assert (0, 2) == tuple(map(gpu.driver.calls().count, "rh"))
    assert ALL == accelerated(engine).uses


def test_memory_of_another_rank_is_locked_for_reading_only(gpu: Gpu, tmp_path: Path) -> None:
    x, y = (Tensor(name, "float32", (4, 4096)) for name in "xy")
    (tmp_path / "ring").write_bytes(np.full(1 << 15, 3, np.float32).tobytes())
    with (tmp_path / "ring").open("rb") as file:
        memory = np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8)
    engine = gpu.load(NEGATIVE.format("4,4096"), (x,), (y,))
    target = slots(y)[0]
    engine.run([typed_view(x, memory[64:])], [target])
    assert -3 == target.max()
    assert [8, 0] == gpu.driver.registered_flags()


@pytest.mark.parametrize(
    ("letter", "code", "function", "left_out"),
    [
        ("i", 999, "cuInit", ALL),
        ("s", 999, "cuStreamCreate", ALL),
        ("a", 999, "cuMemAlloc", ALL[:3]),
        ("f", 708, "cuDevicePrimaryCtxSetFlags", ALL[3:]),
    ],
)
def test_what_the_driver_refuses_is_left_to_onnxruntime(
    gpu: Gpu, letter: str, code: int, function: str, left_out: tuple[str, ...]
) -> None:
    gpu.driver.fail(letter, code)
    engine = gpu.load()
    check_frames(engine)
    reason = f"{function}: CUDA_ERROR_OF_TOY ({code})"
    assert dict.fromkeys(left_out, reason) == accelerated(engine).without
    assert [name for name in ALL if name not in left_out] == [*accelerated(engine).uses]


def test_a_board_without_the_driver_says_so(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_stream, "LIBRARY", "libno-such-driver.so.1")
    engine = gpu.load()
    check_frames(engine)
    assert "libno-such-driver.so.1" in accelerated(engine).without["device buffers"]


@pytest.mark.parametrize(
    ("option", "left_out"),
    [
        ("device_buffers", ALL[:3]),
        ("enable_cuda_graph", ALL[1:2]),
        ("pinned_slots", ALL[2:3]),
        ("blocking_sync", ALL[3:]),
    ],
)
def test_the_platform_file_can_switch_each_off(
    gpu: Gpu, option: str, left_out: tuple[str, ...]
) -> None:
    engine = gpu.load(**{option: "0"})
    check_frames(engine)
    reason = f"the platform file has {option}: 0"
    assert dict.fromkeys(left_out, reason) == accelerated(engine).without
    assert (option == "blocking_sync") != gpu.driver.sleeps()


def test_a_switch_that_is_neither_on_nor_off_is_told(gpu: Gpu) -> None:
    with pytest.raises(JobError) as error:
        gpu.load(pinned_slots="maybe")
    assert "onnxruntime: option pinned_slots is 'maybe', expected true or false" == str(error.value)


def test_a_file_that_is_no_model_is_told_as_on_the_cpu(gpu: Gpu) -> None:
    (gpu.folder / "no.onnx").write_bytes(b"no model")
    settings = EngineSettings(options={"provider": "CUDA"}, accelerator="gpu")
    engine = open_engine("onnxruntime", settings)
    gpu.engines.append(engine)
    with pytest.raises(JobError, match=r"^no\.onnx: onnxruntime cannot load it: "):
        engine.load(gpu.folder / "no.onnx", (A,), (SUM,))


@pytest.mark.parametrize("dtype", ["bfloat16", "int64", "bool"])
def test_values_of_every_type_pass_unchanged(gpu: Gpu, dtype: str) -> None:
    text = (
        f'<ir_version: 9, opset_import: ["" : 19]> g ({dtype}[3] x, {dtype}[0] none) =>'
        f" ({dtype}[3] y, {dtype}[0] nothing) {{ y = Identity (x) nothing = Identity (none) }}"
    )
    x, y = (Tensor(name, dtype, (3,)) for name in "xy")
    none, nothing = (Tensor(name, dtype, (0,)) for name in ("none", "nothing"))
    engine = gpu.load(text, (x, none), (y, nothing))
    rings = [Ring(spec, 1, 1) for spec in (x, none, y, nothing)]
    rings[0].raw[0][...] = np.arange(rings[0].raw[0].size) % 2
    places = [ring.slots[0] for ring in rings]
    engine.run(places[:2], places[2:])
    assert rings[0].raw[0].tobytes() == rings[2].raw[0].tobytes()


def test_a_rank_says_what_all_its_sub_models_use() -> None:
    graph = Acceleration("CUDA", 1, 1, uses=ALL)
    plain = Acceleration("CUDA", 1, 1, uses=ALL[::2], without={ALL[1]: "it has If"})
    whole = total([graph, plain])
    assert whole is not None
    assert ("device buffers", "pinned slots", "blocking sync") == whole.uses
    assert {"CUDA graph": "it has If"} == whole.without


def test_a_pipeline_over_cpu_and_gpu_gives_the_results_of_the_cpu(gpu: Gpu, tmp_path: Path) -> None:
    ranks = {"MaxPool1": 0, "Conv1": 1, "FC1": 1, "Add1": 1, "Relu1": 0}
    folder = build_folder(tmp_path, figure_2(), ranks)
    expected, _ = ran(folder, tmp_path)
    plan = read_plan(folder)
    first, second = plan.ranks
    second = replace(second, accelerator="gpu", options=(("provider", "CUDA"),))
    write_job(folder, plan.with_ranks([first, second]))
    values, records = ran(folder, tmp_path)
    assert expected == values
    assert [None, ("device buffers", "CUDA graph", "pinned slots", "blocking sync")] == [
        record.accelerated and record.accelerated.uses for record in records
    ]


def ran(folder: Path, place: Path) -> tuple[bytes, list[RankFigures]]:
    """Run a folder; return its results and the ranks' records."""
    results = place / "results.bin"
    records = run_in_process(folder, RunOptions(frames=9, results=results))
    return read_results(results).values(0).tobytes(), records
