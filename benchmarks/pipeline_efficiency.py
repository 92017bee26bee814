"""How close a pipeline comes to its slower stage running without any communication.

The pipeline under mpirun; its two stages at the same time, each a plain loop of its engine
(onnxruntime or LiteRT) in a process of its own on its own core, with no messages; and the unsliced
model with one thread and with two: all of these take turns (``alternation.py``), some hundred
times. The ratio of the first to the second, turn by turn, is what communication, frame sources and
the runtime cost. With ``--by-hand`` a bare mpi4py loop (``bare_loop.py``) with the same sub-models
takes part, with ``--beside`` the same pipeline with frames from elsewhere: the ratio of the two
compares the sources.

    python benchmarks/pipeline_efficiency.py --model squeezenet --turn 0.4 --rounds 100 --by-hand
    python benchmarks/pipeline_efficiency.py --model squeezenet --input random --beside npy
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import psutil
from alternation import Contestant, Stamps, mpi_job, take_turns
from boards_throughput import balanced_cuts
from timing import console, machine, print_table, ratios, spread

from rankslice.backend.launch.mpirun import find_mpirun, launch_command
from rankslice.backend.runtime.engines.litert_package import find_package
from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.options import Preprocessing, RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.graph import Tensor
from rankslice.framework.plan import Plan
from rankslice.frontend.formats import read_model
from rankslice.networks.keras_zoo import keras_model, keras_names
from rankslice.networks.zoo import zoo_model, zoo_names
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.building.cut_mapping import mapping_of_cuts, parse_cuts
from rankslice.session.building.planning import MakeMapping
from rankslice.session.inspecting.inspect import inspect_model
from rankslice.session.run import PreparedRun, prepare

ENDLESS = 10**9
"""Frames of jobs that are ended from outside."""
PIPELINE = "pipeline"
SLOWER_STAGE = "slower stage, no communication"
ONE_THREAD, ALL_CORES = "unsliced, one thread", "unsliced, all cores"
LOOP_BY_HAND = "loop by hand"
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


def stages_of(plan: Plan, folder: Path) -> list[Stage]:
    """Return what each rank computes, by rank."""
    tensors = plan.job.tensors
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
    tensors = plan.job.tensors
    inputs = tuple(tensors[name] for name in plan.inputs)
    outputs = tuple(tensors[name] for name in plan.outputs)
    return Stage(cores, (Session(str(model), inputs, outputs),))


def work(stage: Stage, stamps: Path) -> None:
    """Run a stage again and again, and write when each frame was finished."""
    os.sched_setaffinity(0, stage.cores)
    steps = [_step(session, len(stage.cores)) for session in stage.sessions]
    with stamps.open("wb", buffering=0) as file:
        while True:
            for step in steps:
                step()
            file.write(np.float64(time.monotonic()).tobytes())


def stages_alone(name: str, place: Path, stages: Sequence[Stage]) -> Contestant:
    """Start a process for each of some stages; they work at the same time."""
    files = [place / f"{name}-{number}.stamps" for number in range(len(stages))]
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=work, args=(stage, file), daemon=True)
        for stage, file in zip(stages, files, strict=True)
    ]
    for worker in workers:
        worker.start()
    processes = [psutil.Process(worker.pid) for worker in workers]
    return Contestant(name, processes, lambda: processes, files)


def completed_s(results: Path) -> Stamps:
    """Return when the frames of a job came out."""
    return read_results(results).completed_s


def pipeline(name: str, prepared: PreparedRun) -> Contestant:
    """Start a pipeline that does not end by itself."""
    return mpi_job(name, prepared.command, prepared.options.results, completed_s)


def loop_by_hand(pipelined: PreparedRun, stages: Sequence[Stage], stamps: Path) -> Contestant:
    """Start ``bare_loop.py`` on the pipeline's cores."""
    arguments = arguments_by_hand(pipelined.plan, stages)
    command = launch_command(
        pipelined.plan,
        pipelined.folder,
        find_mpirun(),
        program=(sys.executable, str(BARE_LOOP), *arguments, "--stamps", str(stamps)),
    )
    return mpi_job(LOOP_BY_HAND, command, stamps)


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
    onnxruntime = load_onnxruntime()
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


def run_options(source: str, plan: Plan, folder: Path) -> RunOptions:
    """Return the options of a run that does not end by itself.

    Args:
        source: ``random``, ``stored`` (an .npz file), ``npy``, ``photographs``, or an input as
            ``rankslice run`` takes it.
        plan: of the job.
        folder: for files that it reads.
    """
    if source == "stored":
        source = str(store_frames(plan, folder / "frames.npz"))
    elif source == "npy":
        stored = np.load(store_frames(plan, folder / "one.npz"))
        source = str(folder / "frames.npy")
        np.save(source, stored[plan.inputs[0]])
    elif source == "photographs":
        source = str(store_photographs(folder / "photographs"))
    layout = "nhwc" if plan.model.format == "tflite" else "nchw"
    pixels = Preprocessing(layout=layout, mean=(127.5,), scale=(1 / 64,))
    return RunOptions(inputs=(source,), frames=ENDLESS, preprocessing=pixels)


def store_frames(plan: Plan, path: Path) -> Path:
    """Write a few random frames for the model to an .npz file; return it."""
    tensors = plan.job.tensors
    random = np.random.default_rng(0)
    frames = {
        name: random.standard_normal((4, *(tensors[name].shape or ()))).astype(tensors[name].dtype)
        for name in plan.inputs
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


class Case:
    """A model, its mapping, and folders built from them."""

    def __init__(
        self, place: Path, model: Path, mapping: Path | MakeMapping, source: str = "stored"
    ) -> None:
        """Build in ``place``."""
        self.place, self.model = place, model
        options = BuildOptions(share_cores=True)
        built = build(model, mapping, "local", place / "out", options)
        self.plan = built.plan
        self.pipelined = prepare(built.folder, run_options(source, built.plan, place))
        self.stages = stages_of(self.plan, self.pipelined.folder)
        self.cores = tuple(sorted({core for stage in self.stages for core in stage.cores}))

    def in_turns(
        self,
        rounds: int,
        turn_s: float,
        *,
        latency: bool = False,
        by_hand: bool = False,
        beside: str = "",
        whole: bool = True,
    ) -> list[Contestant]:
        """Let the pipeline and its stages take turns, and the ``whole`` model; return them.

        ``latency``: the pipeline with ``--latency``, too. ``by_hand``: a bare loop. ``beside``: the
        pipeline with frames from another source.
        """
        alone = {
            name: unsliced(self.plan, self.model, cores)
            for name, cores in ((ONE_THREAD, self.cores[:1]), (ALL_CORES, self.cores))
            if whole
        }
        begins: list[Callable[[], Contestant]] = [
            lambda: pipeline(PIPELINE, self.pipelined),
            lambda: stages_alone(SLOWER_STAGE, self.place, self.stages),
            *(partial(stages_alone, name, self.place, [stage]) for name, stage in alone.items()),
        ]
        if latency:
            results = self.place / "latency.bin"
            options = replace(self.pipelined.options, latency=True)
            looking = prepare(self.pipelined.folder, options, results=results)
            begins.append(lambda: pipeline("pipeline, --latency", looking))
        if beside:
            results = self.place / "beside.bin"
            options = run_options(beside, self.plan, self.place)
            other = prepare(self.pipelined.folder, options, results=results)
            begins.append(lambda: pipeline(f"pipeline, {beside} frames", other))
        if by_hand:
            stamps = self.place / "by-hand.stamps"
            begins.append(lambda: loop_by_hand(self.pipelined, self.stages, stamps))
        with ExitStack() as running:
            contestants = [running.enter_context(begin()) for begin in begins]
            take_turns(contestants, rounds, turn_s)
        return contestants


def arguments_by_hand(plan: Plan, stages: Sequence[Stage]) -> list[str]:
    """Return what ``bare_loop.py`` is told of a pipeline, but for the number of frames.

    It is for a chain of ranks with a sub-model each and one tensor between two; for others it ends.
    """
    sessions = [session for stage in stages for session in stage.sessions]
    tensors = [tensor for session in sessions for tensor in (session.inputs, session.outputs)]
    if len(sessions) != len(stages) or any(len(ends) != 1 for ends in tensors):
        sys.exit("--by-hand takes ranks with a sub-model each, of one input and one output")
    sizes = [str(session.outputs[0].nbytes) for session in sessions[:-1]]
    files = [session.file for session in sessions]
    cores = [str(stage.cores[0]) for stage in stages]
    return ["--bytes", *sizes, "--cores", *cores, "--models", *files]


def report(title: str, plan: Plan, contestants: Sequence[Contestant]) -> None:
    """Print what the turns showed."""
    rates = {contestant.name: contestant.rates() for contestant in contestants}
    parts = enumerate(contestants[1].rates_of_parts())
    rates |= {f"stage {number}, beside the other": rate for number, rate in parts}
    pipelined = rates[PIPELINE]
    rows = [
        (name, spread(rate).text(1), ratios(pipelined, rate).text(3))
        for name, rate in rates.items()
    ]
    columns = ("", "frames/s", "pipeline / this")
    print_table(title, columns, rows)
    if LOOP_BY_HAND in rates:
        share = ratios(rates[LOOP_BY_HAND], rates[SLOWER_STAGE]).text(3)
        console.print(f"loop by hand / slower stage: {share}\n")
    ranks, alone = (contestant.cpu_ms() for contestant in contestants[:2])
    print_table(
        "Processor time per frame and rank, in ms",
        ("rank", "whole rank", "its stage alone", "runtime"),
        [
            (f"{rank.rank} ({rank.key})", f"{used:.2f}", f"{stage:.2f}", f"{used - stage:.2f}")
            for rank, used, stage in zip(plan.ranks, ranks, alone, strict=True)
        ],
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


def even_mapping(model: Path, ranks: int) -> MakeMapping:
    """Return what maps a model to ranks in slices of about equal work, one tensor a cut."""
    names = [layer.name for layer in read_model(model).graph.layers]
    cuts = balanced_cuts(inspect_model(model).cuts, ranks)
    return mapping_of_cuts([1 + names.index(cut.before) for cut in cuts], share_cores=True)


def default_mapping(network: str, model: Path) -> Path | MakeMapping:
    """Return the shipped mapping of a network to two ranks, or an even one."""
    shipped = shipped_mapping(network)
    return shipped if shipped.exists() else even_mapping(model, 2)


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--model", default="resnet50", help="network of the zoo, resnet50.tflite, or a file")
    add("--mapping", type=Path, help="default: the shipped one for two ranks, or an even one")
    add("--cuts", help="instead of a mapping: where slices begin, as `rankslice build` takes it")
    add("--rounds", type=int, default=60, help="turns of each")
    add("--turn", type=float, default=1.0, help="seconds of a turn")
    add(
        "--input",
        default="stored",
        help="stored; npy; random (drawn by the source); photographs; a file",
    )
    add("--beside", default="", help="the pipeline with frames from there, too")
    add("--latency", action="store_true", help="the pipeline with --latency, too")
    add("--by-hand", action="store_true", help="a bare mpi4py loop with the same sub-models, too")
    args = parser.parse_args()
    model = model_of(args.model)
    mapping: Path | MakeMapping
    if args.cuts:
        mapping = mapping_of_cuts(parse_cuts(args.cuts), share_cores=True)
    else:
        mapping = args.mapping or default_mapping(args.model, model)
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="rankslice-") as name:
        case = Case(Path(name), model, mapping, args.input)
        contestants = case.in_turns(
            args.rounds,
            args.turn,
            latency=args.latency,
            by_hand=args.by_hand,
            beside=args.beside,
        )
        title = f"{args.model}, {args.input} frames, {args.rounds} turns of {args.turn:g} s"
        report(title, case.plan, contestants)


if __name__ == "__main__":
    main()
