"""The options of ``rankslice explore``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from rankslice.commands.app import command
from rankslice.commands.options import (
    AtMost,
    Boards,
    Json,
    OnnxOrTflite,
    Shape,
    SshConfig,
    parse_sizes,
    refuse_shared_files,
)
from rankslice.commands.output import end_interrupted, progress_bars, screen, talk, write_json
from rankslice.framework.files.output_file import STDOUT
from rankslice.framework.specs.keys import split_keys


class _Method(str, Enum):
    exact = "exact"
    nsga2 = "nsga2"
    exhaustive = "exhaustive"


class _Evaluate(str, Enum):
    model = "model"
    simulator = "simulator"
    run = "run"


@command(
    "model.onnx --platform boards.yaml --fps 40",
    "model.onnx --profile profile.json --method nsga2 --evaluate run",
)
def explore(
    context: typer.Context,
    model: OnnxOrTflite,
    platform: Boards = "local",
    profile: Annotated[
        Path | None,
        Option(
            readable=False,
            help="Profile of the layers, made by 'profile' (default: measured first and kept in"
            " the folder).",
        ),
    ] = None,
    out: Annotated[Path, Option(readable=False, help="Folder to create.")] = Path("explored"),
    method: Annotated[
        _Method,
        Option(
            help="Search method. exact: optimal contiguous slices, then improved; nsga2: genetic"
            " algorithm over all mappings; exhaustive: every mapping, for small cases."
        ),
    ] = _Method.exact,
    objectives: Annotated[
        str,
        Option(
            metavar="NAME,NAME",
            help="Objectives: throughput, energy, memory (of the worst board), latency.",
        ),
    ] = "throughput,energy,memory",
    fps: Annotated[
        float | None, Option(min=1e-3, max=1e9, help="Required frame rate, for a recommendation.")
    ] = None,
    surge_fps: Annotated[
        float | None,
        Option(
            min=1e-3,
            max=1e9,
            help="With --fps: frame rate during a surge; recommends one mapping for each rate, for"
            " 'build --surge'.",
        ),
    ] = None,
    turns: Annotated[
        int,
        Option(
            min=1,
            max=64,
            help="Maximum number of accelerators of one kind that take frames in turn on the same"
            " layers.",
        ),
    ] = 1,
    accelerators: Annotated[
        str | None,
        Option(metavar="KEY,KEY,...", help="Mapping keys to use (default: those measured)."),
    ] = None,
    per_core: Annotated[bool, Option("--per-core", help="Use single CPU cores only.")] = False,
    population: Annotated[
        int | None,
        Option(
            min=4,
            max=100_000,
            help="nsga2: population size (default: 100; if simulated or run, the square root of"
            " --evaluations).",
        ),
    ] = None,
    mutation: Annotated[float, Option(min=0, max=1, help="nsga2: mutation probability.")] = 0.1,
    crossover: Annotated[float, Option(min=0, max=1, help="nsga2: crossover probability.")] = 0.5,
    generations: Annotated[
        int | None,
        Option(
            min=1,
            max=1_000_000,
            help="nsga2: number of generations (default: 400; if simulated or run, until"
            " --evaluations is reached).",
        ),
    ] = None,
    seed: Annotated[int, Option(min=0, help="nsga2: random seed.")] = 0,
    coarse: Annotated[
        bool, Option("--coarse", help="Move blocks of layers first, then single layers.")
    ] = False,
    evaluate: Annotated[
        _Evaluate,
        Option(
            help="How to evaluate mappings. model: cost model; simulator: simulate each; run:"
            " build, deploy and run each. nsga2 and exhaustive use these figures in the search;"
            " exact uses the cost model, and then ranks its result by these figures."
        ),
    ] = _Evaluate.model,
    evaluations: Annotated[
        int | None,
        Option(
            "--evaluations",
            "--runs",
            min=1,
            max=1_000_000,
            help="Maximum number of mappings to simulate (default: 1000) or run (default: 50).",
        ),
    ] = None,
    frames: Annotated[
        int | None,
        Option(
            min=1, help="Frames per simulation (default: 100) or run (default: 3 seconds' worth)."
        ),
    ] = None,
    keep: Annotated[
        int, Option(min=1, max=99, help="Maximum number of mappings of the front to write.")
    ] = 24,
    shape: Shape = None,
    at_most: AtMost = None,
    ssh_config: SshConfig = None,
    force: Annotated[
        bool,
        Option(
            "--force",
            help="Replace the folder of an earlier exploration, but reuse its measurements.",
        ),
    ] = False,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    from rankslice.commands.explore.explore import unfinished_files
    from rankslice.commands.explore.function import explore as explore_mappings
    from rankslice.commands.explore.show import print_exploration
    from rankslice.commands.profile.show import ProfileTalk
    from rankslice.commands.profile.span_bench import Listener
    from rankslice.exploration.results.front_files import exploration_to_json

    sizes = parse_sizes(shape, at_most)
    with progress_bars() as progress:
        listener = ProfileTalk(talk, progress) if profile is None else Listener()
        bars: dict[str, Any] = {}

        def on_progress(step: str, done: int, total: int) -> None:
            if step not in bars:
                bars[step] = progress.add_task(step, total=total)
            progress.update(bars[step], completed=done, total=total)

        try:
            found = explore_mappings(
                model,
                platform,
                out,
                profile=profile,
                method=method.value,
                objectives=objectives.split(","),
                fps=fps,
                surge_fps=surge_fps,
                turns=turns,
                accelerators=split_keys(accelerators or "", "--accelerators"),
                per_core=per_core,
                population=population,
                mutation=mutation,
                crossover=crossover,
                generations=generations,
                seed=seed,
                coarse=coarse,
                evaluate=evaluate.value,
                evaluations=evaluations,
                frames=frames,
                keep=keep,
                shape=sizes.fixed,
                at_most=sizes.at_most,
                ssh_config=ssh_config,
                force=force,
                listener=listener,
                on_progress=on_progress,
            )
        except KeyboardInterrupt:
            end_interrupted(unfinished_files(out))
    write_json(json_file, exploration_to_json(found))
    if json_file != STDOUT:
        print_exploration(found, str(out), screen)
