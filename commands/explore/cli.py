"""The options of ``rankslice explore``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankslice.commands.command import command, function
from rankslice.commands.output import end_interrupted, write_json
from rankslice.framework.files.output_file import STDOUT
from rankslice.framework.option_records import about, comma_separated, option
from rankslice.session.shared_options import (
    Boards,
    Json,
    OnnxOrTflite,
    OpenSizes,
    SshConfig,
    accelerator_keys,
)
from rankslice.views.terminal import progress_bars, screen, talk

if TYPE_CHECKING:
    from rankslice.exploration.results.candidates import Exploration
    from rankslice.exploration.search.methods import SearchOptions
    from rankslice.session.profiling.span_bench import Listener

Folder = Annotated[Path, about("Folder to create.", Path)]
ProfileToRead = Annotated[
    Path | None,
    about(
        "Profile of the layers, made by 'profile' (default: measured first and kept in the"
        " folder).",
        Path,
    ),
]


@dataclass(frozen=True, slots=True)
class Search:
    """What to search for, and how."""

    method: str = option(
        "exact",
        "Search method. exact: optimal contiguous slices, then improved; nsga2: genetic algorithm"
        " over all mappings; exhaustive: every mapping, for small cases.",
        ("exact", "nsga2", "exhaustive"),
    )
    objectives: tuple[str, ...] = option(
        ("throughput", "energy", "memory"),
        "Objectives: throughput, energy, memory (of the worst board), latency.",
        comma_separated,
        metavar="NAME,NAME",
        shown="throughput,energy,memory",
    )
    fps: float | None = option(
        None, "Required frame rate, for a recommendation.", float, least=1e-3, most=1e9
    )
    surge_fps: float | None = option(
        None,
        "With --fps: frame rate during a surge; recommends one mapping for each rate, for 'build"
        " --surge'.",
        float,
        least=1e-3,
        most=1e9,
        needs="fps",
        above="fps",
    )
    turns: int = option(
        1,
        "Maximum number of accelerators of one kind that take frames in turn on the same layers.",
        int,
        least=1,
        most=64,
    )
    accelerators: tuple[str, ...] = option(
        (),
        "Mapping keys to use (default: those measured).",
        accelerator_keys,
        metavar="KEY,KEY,...",
    )
    per_core: bool = option(False, "Use single CPU cores only.")
    population: int | None = option(
        None,
        "nsga2: population size (default: 100; if simulated or run, the square root of"
        " --evaluations).",
        int,
        least=4,
        most=100_000,
    )
    mutation: float = option(0.1, "nsga2: mutation probability.", float, least=0, most=1)
    crossover: float = option(0.5, "nsga2: crossover probability.", float, least=0, most=1)
    generations: int | None = option(
        None,
        "nsga2: number of generations (default: 400; if simulated or run, until --evaluations is"
        " reached).",
        int,
        least=1,
        most=1_000_000,
    )
    seed: int = option(0, "nsga2: random seed.", int, least=0)
    coarse: bool = option(False, "Move blocks of layers first, then single layers.")
    evaluate: str = option(
        "model",
        "How to evaluate mappings. model: cost model; simulator: simulate each; run: build, deploy"
        " and run each. nsga2 and exhaustive use these figures in the search; exact uses the cost"
        " model, and then ranks its result by these figures.",
        ("model", "simulator", "run"),
    )
    evaluations: int | None = option(
        None,
        "Maximum number of mappings to simulate (default: 1000) or run (default: 50).",
        int,
        least=1,
        most=1_000_000,
        alias=("--runs",),
        needs="evaluate",
    )
    frames: int | None = option(
        None,
        "Frames per simulation (default: 100) or run (default: 3 seconds' worth).",
        int,
        least=1,
        needs="evaluate",
    )
    keep: int = option(
        24, "Maximum number of mappings of the front to write.", int, least=1, most=99
    )

    @property
    def options(self) -> SearchOptions:
        """The search as the methods take it.

        Raises:
            RankSliceError: there are no such objectives.
        """
        from rankslice.exploration.objectives import parse_objectives
        from rankslice.exploration.search.methods import (
            EVALUATIONS,
            SearchOptions,
            default_genetics,
        )

        evaluations = self.evaluations or EVALUATIONS.get(self.evaluate, 0)
        usual = default_genetics(self.evaluate, evaluations)
        return SearchOptions(
            method=self.method,
            objectives=parse_objectives(",".join(self.objectives)),
            target_fps=self.fps,
            surge_fps=self.surge_fps,
            most_turns=self.turns,
            keys=tuple(dict.fromkeys(self.accelerators)),
            per_core=self.per_core,
            genetics=replace(
                usual,
                population=self.population or usual.population,
                mutation=self.mutation,
                crossover=self.crossover,
                generations=self.generations or usual.generations,
                seed=self.seed,
            ),
            coarse=self.coarse,
            keep=self.keep,
            evaluate=self.evaluate,
            evaluations=evaluations,
            frames=self.frames,
        )


@function
def explore(
    model: OnnxOrTflite,
    platform: Boards = "local",
    out: Folder = Path("explored"),
    *,
    profile: ProfileToRead = None,
    search: Search,
    sizes: OpenSizes,
    ssh_config: SshConfig = None,
    force: Annotated[
        bool,
        about("Replace the folder of an earlier exploration, but reuse its measurements."),
    ] = False,
    listener: Listener | None = None,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Exploration:
    """Find good mappings, and write them into a folder with a table and a page.

    The fastest mapping is ``candidates[0]``; ``candidates[0].file`` is the name of its file in
    ``out``. ``listener`` receives the progress of measuring; ``on_progress`` is called with a
    step, how much of it is done, and the total.

    Raises:
        RankSliceError: there is no mapping that can run, or no way to find one.
    """
    from rankslice.commands.explore.explore import ExploreOptions, explore as explore_mappings

    return explore_mappings(
        model,
        platform,
        out,
        ExploreOptions(search.options, profile, sizes.given, force, ssh_config),
        listener=listener,
        on_progress=on_progress,
    )


@command(
    "explore",
    "model.onnx --platform boards.yaml --fps 40",
    "model.onnx --profile profile.json --method nsga2 --evaluate run",
    calls=explore,
)
def show_exploration(
    call: Callable[..., Exploration],
    out: Folder = Path("explored"),
    profile: ProfileToRead = None,
    json: Json = None,
) -> None:
    from rankslice.commands.explore.explore import unfinished_files
    from rankslice.commands.explore.show import print_exploration
    from rankslice.commands.profile.show import ProfileTalk
    from rankslice.exploration.results.front_files import exploration_to_json
    from rankslice.session.profiling.span_bench import Listener

    with progress_bars() as progress:
        listener = ProfileTalk(talk, progress) if profile is None else Listener()
        bars: dict[str, Any] = {}

        def on_progress(step: str, done: int, total: int) -> None:
            if step not in bars:
                bars[step] = progress.add_task(step, total=total)
            progress.update(bars[step], completed=done, total=total)

        try:
            found = call(listener=listener, on_progress=on_progress)
        except KeyboardInterrupt:
            end_interrupted(unfinished_files(out))
    write_json(json, exploration_to_json(found))
    if json != STDOUT:
        print_exploration(found, str(out), screen)
