"""How close a pipeline comes to its slower stage running without any communication.

Each round measures, one after the other: the pipeline under mpirun; its two stages at the same
time, each a plain loop of its engine (onnxruntime or LiteRT) in a process of its own on its own
core, with no messages; and the unsliced model with one thread and with two. The ratio of the first
to the second, pair by pair, is what communication, frame sources and the runtime cost. With
``--drivers`` the unsliced model also runs as the pipeline does, on one rank; with ``--by-hand`` a
bare mpi4py loop (``bare_loop.py``) with the same sub-models takes part.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
from measuring import console, machine, print_table, ratios, spread, start_round

from rankslice.backend.launch import find_mpirun, launch_command
from rankslice.backend.runtime.engines.litert_package import find_package
from rankslice.backend.runtime.images import Preprocessing
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.commands.build import build
from rankslice.framework.commands.cutting import mapping_of_cuts, parse_cuts
from rankslice.framework.commands.planning import MakeMapping
from rankslice.framework.commands.run import PreparedRun, prepare, run
from rankslice.framework.graph import Graph, Tensor
from rankslice.framework.mapping import Mapping, MappingEntry
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Platform
from rankslice.measurement.keras_zoo import keras_model, keras_names
from rankslice.measurement.summary import RunSummary
from rankslice.measurement.zoo import zoo_model, zoo_names

WARM_UP_S = 0.5
BARE_LOOP = Path(__file__).with_name("bare_loop.py")


@dataclass(frozen=True, slots=True)
class Session:
    """A model file and what must be bound to run it."""

    file: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """Sessions that run one after the other on some cores."""

    cores: tuple[int, ...]
    sessions: tuple[Session, ...]


@dataclass(frozen=True, slots=True)
class Speed:
    """What a plain loop reached."""

    fps: float
    cpu_ms: float
    """Processor time per frame."""


def stages_of(plan: Plan, folder: Path) -> list[Stage]:
    """Return what each rank computes, by rank."""
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    return [
        Stage(
            placement.cores,
            tuple(
                Session(
                    str(folder / segment.file),
                    tuple(tensors[name] for name in segment.inputs),
                    tuple(tensors[name] for name in segment.outputs),
                )
                for segment in plan.of_rank(placement.rank)
            ),
        )
        for placement in plan.ranks
    ]


def unsliced(plan: Plan, model: Path, cores: tuple[int, ...]) -> Stage:
    """Return the whole model as one stage."""
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    inputs = tuple(tensors[name] for name in plan.model.inputs)
    outputs = tuple(tensors[name] for name in plan.model.outputs)
    return Stage(cores, (Session(str(model), inputs, outputs),))


def run_together(stages: Sequence[Stage], seconds: float) -> list[Speed]:
    """Run each stage in a process of its own, all at the same time; return their speeds."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(stages))
    answers = [context.SimpleQueue() for _ in stages]
    processes = [
        context.Process(target=_run_alone, args=(stage, seconds, barrier, answer))
        for stage, answer in zip(stages, answers, strict=True)
    ]
    for process in processes:
        process.start()
    speeds = [answer.get() for answer in answers]
    for process in processes:
        process.join()
    return speeds


def _run_alone(
    stage: Stage,
    seconds: float,
    barrier: Barrier,
    answer: multiprocessing.SimpleQueue[Speed],
) -> None:
    os.sched_setaffinity(0, stage.cores)
    steps = [_step(session, len(stage.cores)) for session in stage.sessions]

    def frames_in(limit_s: float) -> tuple[int, float]:
        begin, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - begin) < limit_s:
            for step in steps:
                step()
            count += 1
        return count, passed

    frames_in(WARM_UP_S)
    barrier.wait()
    cpu_s = time.process_time()
    count, passed = frames_in(seconds)
    answer.put(Speed(count / passed, 1e3 * (time.process_time() - cpu_s) / count))


def _step(session: Session, threads: int) -> Callable[[], object]:
    """Return what runs a session once, with the settings of the runtime's engine."""
    make = _litert_step if session.file.endswith(".tflite") else _onnxruntime_step
    return make(session, threads)


def _litert_step(session: Session, threads: int) -> Callable[[], object]:
    interpreter = find_package().interpreter(Path(session.file), threads, [])
    interpreter.allocate_tensors()
    random = np.random.default_rng(0)
    for details in interpreter.get_input_details():
        values = random.standard_normal(details["shape"]).astype(details["dtype"])
        interpreter.set_tensor(details["index"], values)
    step: Callable[[], object] = interpreter.invoke
    return step


def _onnxruntime_step(session: Session, threads: int) -> Callable[[], object]:
    """Return a run of a session that is bound to memory of its own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    loaded = onnxruntime.InferenceSession(session.file, options, providers=["CPUExecutionProvider"])
    binding = loaded.io_binding()
    random = np.random.default_rng(0)
    for tensor in session.inputs:
        values = random.standard_normal(tensor.shape).astype(tensor.dtype)
        binding.bind_ortvalue_input(tensor.name, onnxruntime.OrtValue.ortvalue_from_numpy(values))
    for tensor in session.outputs:
        values = np.empty(tensor.shape, tensor.dtype)
        binding.bind_ortvalue_output(tensor.name, onnxruntime.OrtValue.ortvalue_from_numpy(values))
    return lambda: loaded.run_with_iobinding(binding)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of measurements."""

    pipeline: RunSummary
    stages: list[Speed]
    one_thread: Speed
    all_threads: Speed
    drivers: list[RunSummary]
    """The unsliced model on one rank of one core, and of all cores; nothing if not asked for."""
    by_hand_fps: float | None
    """Rate of the loop by hand; ``None`` if not asked for."""

    @property
    def reference_fps(self) -> float:
        """Rate of the slower stage."""
        return min(stage.fps for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Frames:
    """What the jobs run on."""

    source: str
    """``random``, ``stored``, ``photographs``, or an input as ``rankslice run`` takes it."""
    count: int
    fps: float | None = None
    """Arrivals per second; ``None``: as fast as they are taken."""

    def options(self, plan: Plan, folder: Path) -> RunOptions:
        """Return the options of a run; files that it reads are made in the folder."""
        name = self.source
        if name == "stored":
            name = str(store_frames(plan, folder / "frames.npz"))
        elif name == "photographs":
            name = str(store_photographs(folder / "photographs"))
        layout = "nhwc" if plan.model.format == "tflite" else "nchw"
        pixels = Preprocessing(layout=layout, mean=(127.5,), scale=(1 / 64,))
        return RunOptions(inputs=(name,), frames=self.count, fps=self.fps, preprocessing=pixels)


def store_frames(plan: Plan, path: Path) -> Path:
    """Write a few random frames for the model to an .npz file; return it."""
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    random = np.random.default_rng(0)
    frames = {
        name: random.standard_normal((4, *(tensors[name].shape or ()))).astype(tensors[name].dtype)
        for name in plan.model.inputs
    }
    np.savez(path, **frames)
    return path


def store_photographs(folder: Path) -> Path:
    """Write scikit-learn's two photographs, 640 x 427 pixels, as JPEG files; return the folder."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    folder.mkdir(exist_ok=True)
    for number, pixels in enumerate(load_sample_images().images):
        Image.fromarray(pixels).save(folder / f"{number}.jpg")
    return folder


def on_one_rank(cores: Sequence[int]) -> MakeMapping:
    """Return what maps a whole model to some cores of this machine."""

    def mapping(graph: Graph, platform: Platform) -> Mapping:
        key = f"{platform.boards[0].name}_cpu{','.join(map(str, cores))}"
        layers = tuple(layer.name for layer in graph.layers)
        return Mapping("all on one rank", (MappingEntry(key, layers),))

    return mapping


def measure(
    model: Path,
    mapping: Path | MakeMapping,
    frames: Frames,
    rounds: int,
    patience_s: float,
    *,
    drivers: bool = False,
    by_hand: bool = False,
) -> list[Round]:
    """Build, then measure; return the rounds."""
    with tempfile.TemporaryDirectory(prefix="rankslice-") as name:
        place = Path(name)

        def prepared(mapping: Path | MakeMapping, out: str) -> PreparedRun:
            built = build(model, mapping, "local", place / out, share_cores=True)
            return prepare(built.folder, frames.options(built.plan, place))

        pipelined = prepared(mapping, "pipelined")
        plan = pipelined.plan
        stages = stages_of(plan, pipelined.folder)
        told = arguments_by_hand(plan, stages) if by_hand else []
        every_core = tuple(sorted({core for stage in stages for core in stage.cores}))
        alone = [
            prepared(on_one_rank(cores), f"on-{len(cores)}")
            for cores in ((every_core[:1], every_core) if drivers else ())
        ]
        found = []
        for number in range(rounds):
            start_round(number + 1, rounds, patience_s)
            pipeline = run(pipelined).summary
            seconds = pipeline.completed / pipeline.throughput_fps
            found.append(
                Round(
                    pipeline,
                    run_together(stages, seconds),
                    run_together([unsliced(plan, model, every_core[:1])], seconds)[0],
                    run_together([unsliced(plan, model, every_core)], seconds)[0],
                    [run(each).summary for each in alone],
                    run_by_hand(pipelined, told, frames.count) if told else None,
                )
            )
        return found


def arguments_by_hand(plan: Plan, stages: Sequence[Stage]) -> list[str]:
    """Return what ``bare_loop.py`` is told of a pipeline, but for the number of frames.

    It is for two ranks with a sub-model each and one tensor between them; for others it ends.
    """
    sessions = [session for stage in stages for session in stage.sessions]
    tensors = [tensor for each in sessions for tensor in (each.inputs, each.outputs)]
    if len(stages) != 2 or len(sessions) != 2 or any(len(each) != 1 for each in tensors):
        sys.exit("--by-hand takes two ranks with a sub-model each, of one input and one output")
    between = sessions[1].inputs[0].nbytes
    assert between is not None, "channels are of fixed size"
    engine = "litert" if plan.model.format == "tflite" else "onnxruntime"
    files = [session.file for session in sessions]
    cores = [str(stage.cores[0]) for stage in stages]
    return ["--engine", engine, "--bytes", str(between), "--cores", *cores, "--models", *files]


def run_by_hand(pipelined: PreparedRun, told: Sequence[str], count: int) -> float:
    """Run ``bare_loop.py`` on the pipeline's cores; return its frames per second."""
    command = launch_command(
        pipelined.plan,
        pipelined.folder,
        find_mpirun(),
        [*told, "--frames", str(count)],
        program=(sys.executable, str(BARE_LOOP)),
    )
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return 1e3 / float(json.loads(answer)["frame_ms"])


def report(title: str, rounds: Sequence[Round]) -> None:
    """Print what the rounds showed."""
    pipeline = [each.pipeline.throughput_fps for each in rounds]
    references = {
        "slower stage, no communication": [each.reference_fps for each in rounds],
        "unsliced, one thread": [each.one_thread.fps for each in rounds],
        "unsliced, all cores": [each.all_threads.fps for each in rounds],
    }
    by_hand = [each.by_hand_fps for each in rounds if each.by_hand_fps is not None]
    if by_hand:
        references["loop by hand"] = by_hand
    rows = [("pipeline", spread(pipeline).text(1), "1")]
    rows += [
        (name, spread(fps).text(1), ratios(pipeline, fps).text(3))
        for name, fps in references.items()
    ]
    print_table(title, ("", "frames/s", "pipeline / this"), rows)
    if by_hand:
        share = ratios(by_hand, references["slower stage, no communication"])
        console.print(f"loop by hand / slower stage: {share.text(3)}\n")
    print_table(
        "Processor time per frame and rank, in ms",
        ("rank", "compute (wall)", "whole rank", "its stage alone", "runtime"),
        [_rank_row(rank, rounds) for rank in range(len(rounds[0].stages))],
    )
    if rounds[0].drivers:
        print_table(
            "As rankslice run measures it: frames/s, and mean milliseconds of a frame",
            ("driver", "frames/s", "end to end", "preprocessing", "ranks", "postprocessing"),
            [
                _driver_row("unsliced, one core", [each.drivers[0] for each in rounds]),
                _driver_row("unsliced, all cores", [each.drivers[1] for each in rounds]),
                _driver_row("pipeline", [each.pipeline for each in rounds]),
            ],
        )


def _driver_row(name: str, runs: Sequence[RunSummary]) -> tuple[str, ...]:
    ranks = range(len(runs[0].ranks))
    computing = [spread(one.ranks[rank].compute_ms["mean"] for one in runs) for rank in ranks]
    return (
        name,
        spread(one.throughput_fps for one in runs).text(1),
        spread(one.latency_ms["mean"] for one in runs).text(1),
        spread(one.preprocess_ms["mean"] for one in runs).text(1),
        ", ".join(found.text(1) for found in computing),
        spread(one.postprocess_ms["mean"] for one in runs).text(),
    )


def _rank_row(rank: int, rounds: Sequence[Round]) -> tuple[str, ...]:
    ranks = [each.pipeline.ranks[rank] for each in rounds]
    alone = [each.stages[rank].cpu_ms for each in rounds]
    used = [found.cpu_ms for found in ranks]
    return (
        f"{rank} ({ranks[0].key})",
        spread(found.compute_ms["mean"] for found in ranks).text(),
        spread(used).text(),
        spread(alone).text(),
        spread(a - b for a, b in zip(used, alone, strict=True)).text(),
    )


def model_of(name: str) -> Path:
    """Return a model file.

    Args:
        name: a network of the zoo; one of Keras's, as ``resnet50.tflite`` or
            ``resnet50-int8.tflite``; or any file.
    """
    network, _, kind = Path(name).stem.partition("-")
    if name in zoo_names():
        return zoo_model(name)
    if name.endswith(".tflite") and network in keras_names() and not Path(name).exists():
        return keras_model(network, kind or "float32")
    return Path(name)


def shipped_mapping(name: str) -> Path:
    """Return the shipped mapping of a network to two ranks."""
    return Path(str(files("rankslice") / "mappings" / f"{name}-two-ranks.json"))


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--model", default="resnet50", help="network of the zoo, resnet50.tflite, or a file")
    add("--mapping", type=Path, help="default: the shipped one for two ranks")
    add("--cuts", help="instead of a mapping: where slices begin, as `rankslice build` takes it")
    add("--frames", type=int, default=200, help="per round")
    add("--rounds", type=int, default=5, help="pairs of measurements")
    add("--fps", type=float, help="arrivals per second (default: as fast as they are taken)")
    add(
        "--input",
        default="random",
        help="random (drawn by the source); stored; photographs; a file",
    )
    add("--drivers", action="store_true", help="run the unsliced model on one rank, too")
    add("--by-hand", action="store_true", help="a bare mpi4py loop with the same sub-models, too")
    add("--patience", type=float, default=0, help="seconds to wait, before a round, for quiet")
    given = parser.parse_args()
    mapping: Path | MakeMapping
    if given.cuts:
        mapping = mapping_of_cuts(parse_cuts(given.cuts), share_cores=True)
    else:
        mapping = given.mapping or shipped_mapping(given.model)
    console.print(machine())
    frames = Frames(given.input, given.frames, given.fps)
    model = model_of(given.model)
    rounds = measure(
        model,
        mapping,
        frames,
        given.rounds,
        given.patience,
        drivers=given.drivers,
        by_hand=given.by_hand,
    )
    report(f"{given.model}, {given.frames} {given.input} frames a round", rounds)


if __name__ == "__main__":
    main()
