"""How close a pipeline comes to its slower stage running without any communication.

Each round measures, one after the other: the pipeline under mpirun; its two stages at the same
time, each a plain onnxruntime loop in a process of its own on its own core, with no messages; and
the unsliced model with one thread and with two. The ratio of the first to the second, pair by
pair, is what communication, frame sources and the runtime cost.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
from measuring import console, machine, print_table, ratios, spread, start_round

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.commands.build import build
from rankslice.framework.commands.run import prepare, run
from rankslice.framework.graph import Tensor
from rankslice.framework.plan import Plan
from rankslice.measurement.summary import RunSummary
from rankslice.measurement.zoo import zoo_model, zoo_names

WARM_UP_S = 0.5


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
    bound = [_bound(session, len(stage.cores)) for session in stage.sessions]

    def frames_in(limit_s: float) -> tuple[int, float]:
        begin, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - begin) < limit_s:
            for session, binding in bound:
                session.run_with_iobinding(binding)
            count += 1
        return count, passed

    frames_in(WARM_UP_S)
    barrier.wait()
    cpu_s = time.process_time()
    count, passed = frames_in(seconds)
    answer.put(Speed(count / passed, 1e3 * (time.process_time() - cpu_s) / count))


def _bound(session: Session, threads: int):  # type: ignore[no-untyped-def]
    """Return a session with the settings of the runtime's engine, bound to memory of its own."""
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
    return loaded, binding


@dataclass(frozen=True, slots=True)
class Round:
    """One round of measurements."""

    pipeline: RunSummary
    stages: list[Speed]
    one_thread: Speed
    all_threads: Speed

    @property
    def reference_fps(self) -> float:
        """Rate of the slower stage."""
        return min(stage.fps for stage in self.stages)


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


def measure(
    model: Path, mapping: Path, frames: int, source: str, rounds: int, patience_s: float
) -> list[Round]:
    """Build, then measure; return the rounds."""
    with tempfile.TemporaryDirectory(prefix="rankslice-") as place:
        built = build(model, mapping, "local", Path(place) / "out", share_cores=True)
        stages = stages_of(built.plan, built.folder)
        every_core = tuple(sorted({core for stage in stages for core in stage.cores}))
        if source == "stored":
            source = str(store_frames(built.plan, Path(place) / "frames.npz"))
        prepared = prepare(built.folder, RunOptions(inputs=(source,), frames=frames))
        found = []
        for number in range(rounds):
            start_round(number + 1, rounds, patience_s)
            pipeline = run(prepared).summary
            seconds = pipeline.completed / pipeline.throughput_fps
            found.append(
                Round(
                    pipeline,
                    run_together(stages, seconds),
                    run_together([unsliced(built.plan, model, every_core[:1])], seconds)[0],
                    run_together([unsliced(built.plan, model, every_core)], seconds)[0],
                )
            )
        return found


def report(title: str, rounds: Sequence[Round]) -> None:
    """Print what the rounds showed."""
    pipeline = [each.pipeline.throughput_fps for each in rounds]
    references = {
        "slower stage, no communication": [each.reference_fps for each in rounds],
        "unsliced, one thread": [each.one_thread.fps for each in rounds],
        "unsliced, all cores": [each.all_threads.fps for each in rounds],
    }
    rows = [("pipeline", spread(pipeline).text(1), "1")]
    rows += [
        (name, spread(fps).text(1), ratios(pipeline, fps).text(3))
        for name, fps in references.items()
    ]
    print_table(title, ("", "frames/s", "pipeline / this"), rows)
    print_table(
        "Processor time per frame and rank, in ms",
        ("rank", "compute (wall)", "whole rank", "its stage alone", "runtime"),
        [_rank_row(rank, rounds) for rank in range(len(rounds[0].stages))],
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


def main() -> None:
    """Take the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--model", default="resnet50", help="network of the zoo, or an .onnx file")
    add("--mapping", type=Path, help="default: the shipped one for two ranks")
    add("--frames", type=int, default=200, help="per round")
    add("--rounds", type=int, default=5, help="pairs of measurements")
    add("--input", default="random", help="random: made on the source's core; stored; a file")
    add("--patience", type=float, default=0, help="seconds to wait, before a round, for quiet")
    given = parser.parse_args()
    model = zoo_model(given.model) if given.model in zoo_names() else Path(given.model)
    shipped = files("rankslice") / "mappings" / f"{given.model}-two-ranks.json"
    mapping = given.mapping or Path(str(shipped))
    console.print(machine())
    rounds = measure(model, mapping, given.frames, given.input, given.rounds, given.patience)
    report(f"{given.model}, {given.frames} {given.input} frames a round", rounds)


if __name__ == "__main__":
    main()
