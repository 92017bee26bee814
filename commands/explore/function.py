"""``rankslice.explore``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rankslice.commands.arguments import (
    Count,
    Natural,
    Positive,
    Sizes,
    check_choice,
    checked,
    path_of,
    sizes_from,
)
from rankslice.commands.explore.explore import ExploreOptions, explore as explore_mappings
from rankslice.commands.options import refuse_with
from rankslice.commands.profile.span_bench import Listener
from rankslice.exploration.objectives import parse_objectives
from rankslice.exploration.results.candidates import Exploration
from rankslice.exploration.search.methods import (
    EVALUATIONS,
    METHODS,
    SearchOptions,
    default_genetics,
)
from rankslice.exploration.search.space import GeneticOptions
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.specs.read_platform import PlatformSource

_USUAL, _GENETICS = SearchOptions(), GeneticOptions()


@checked
def explore(
    model: str | Path,
    platform: PlatformSource = "local",
    out: str | Path = "explored",
    *,
    profile: str | Path | None = None,
    method: str = _USUAL.method,
    objectives: Sequence[str] = _USUAL.objectives,
    fps: Positive | None = _USUAL.target_fps,
    surge_fps: float | None = _USUAL.surge_fps,
    turns: Count = _USUAL.most_turns,
    accelerators: Sequence[str] = _USUAL.keys,
    per_core: bool = _USUAL.per_core,
    population: Count | None = None,
    mutation: float = _GENETICS.mutation,
    crossover: float = _GENETICS.crossover,
    generations: Count | None = None,
    seed: Natural = _GENETICS.seed,
    coarse: bool = _USUAL.coarse,
    evaluate: str = _USUAL.evaluate,
    evaluations: Count | None = None,
    frames: Count | None = _USUAL.frames,
    keep: Count = _USUAL.keep,
    shape: Sizes | None = None,
    at_most: Sizes | None = None,
    ssh_config: str | Path | None = None,
    force: bool = False,
    listener: Listener | None = None,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Exploration:
    """Find good mappings, and write them into a folder with a table and a page.

    The fastest mapping is ``candidates[0]``; ``candidates[0].file`` is the name of its file in
    ``out``.

    Args:
        model: an ``.onnx`` or ``.tflite`` file.
        platform: a platform file, ``local`` for this machine, or a ``Platform``.
        out: the folder to make; it appears complete or not at all.
        profile: made by ``profile``; by default layers are measured first.
        method: ``exact``, ``nsga2`` or ``exhaustive``.
        objectives: of ``throughput``, ``energy``, ``memory`` and ``latency``.
        fps: required frames per second, for a recommendation.
        surge_fps: with ``fps``: frames per second during a surge.
        turns: up to so many accelerators of one kind take frames in turn.
        accelerators: mapping keys to use; those measured by default.
        per_core: use single CPU cores only.
        population: of nsga2; by default 100, or what suits ``evaluations``.
        mutation: of nsga2: probability.
        crossover: of nsga2: probability.
        generations: of nsga2; by default 400, or until ``evaluations`` is reached.
        seed: of nsga2: random seed.
        coarse: move blocks of layers first, then single layers.
        evaluate: ``model``, ``simulator`` or ``run``: what evaluates mappings.
        evaluations: most mappings to simulate (1000 by default) or run (50).
        frames: of each simulation (100 by default) or run (those of 3 seconds).
        keep: most mappings of the front to write.
        shape: sizes of all frames where the model leaves them open.
        at_most: largest sizes of any frame where the model leaves them open.
        ssh_config: handed to ssh as ``-F``.
        force: replace the folder of an older exploration, but reuse its measurements.
        listener: receives the progress of measuring.
        on_progress: called with a step, how much of it is done, and the total.

    Raises:
        RankSliceError: there is no mapping that can run, or no way to find one.
    """
    check_choice("method", method, METHODS)
    check_choice("evaluate", evaluate, ("model", *EVALUATIONS))
    if surge_fps is not None and (fps is None or surge_fps <= fps):
        expected = "expected more than --fps, the usual rate"
        found = "is given without --fps" if fps is None else f"is {surge_fps:g}, --fps {fps:g}"
        raise RankSliceError(Mistake("--surge-fps", found, expected))
    if evaluate == "model":
        refuse_with("--evaluate model", evaluations=evaluations, frames=frames)
    most = evaluations or EVALUATIONS.get(evaluate, 0)
    usual = default_genetics(evaluate, most)
    wanted = SearchOptions(
        method=method,
        objectives=parse_objectives(",".join(objectives)),
        target_fps=fps,
        surge_fps=surge_fps,
        most_turns=turns,
        keys=tuple(dict.fromkeys(accelerators)),
        per_core=per_core,
        genetics=replace(
            usual,
            population=population or usual.population,
            mutation=mutation,
            crossover=crossover,
            generations=generations or usual.generations,
            seed=seed,
        ),
        coarse=coarse,
        keep=keep,
        evaluate=evaluate,
        evaluations=most,
        frames=frames,
    )
    sizes = sizes_from(shape, at_most)
    return explore_mappings(
        Path(model),
        platform,
        Path(out),
        ExploreOptions(wanted, path_of(profile), sizes, force, path_of(ssh_config)),
        listener=listener,
        on_progress=on_progress,
    )
