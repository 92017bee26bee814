"""``rankslice explore``: which mapping is best, as files, a table and a page."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.ssh import is_this_machine
from rankslice.exploration.answer import answer
from rankslice.exploration.choices import choices_of
from rankslice.exploration.exact_plans import exact_seeds, exact_sweep
from rankslice.exploration.exhaustive import MOST_MAPPINGS, exhaustive
from rankslice.exploration.front import Archive
from rankslice.exploration.nsga2 import Genetics, Population, Score, Scores, nsga2
from rankslice.exploration.page import page_of
from rankslice.exploration.places import default_keys
from rankslice.exploration.problem import Problem
from rankslice.exploration.profiled import profiled_problem
from rankslice.exploration.results import (
    FORMAT,
    Choice,
    Exploration,
    Figures,
    choices_csv,
    exploration_to_json,
)
from rankslice.exploration.scoring import OBJECTIVES, can_be_had, scorer, space_of
from rankslice.exploration.seeds import contiguous_seeds
from rankslice.framework.commands.build import build
from rankslice.framework.commands.deploy import deploy, plan_deployment
from rankslice.framework.commands.profile import read_profile
from rankslice.framework.commands.run import REFERENCE_ENGINES, FinishedRun, prepare, run
from rankslice.framework.commands.simulate import Traffic, simulate
from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.new_folder import new_folder
from rankslice.framework.platform import Platform
from rankslice.framework.specs.read_platform import read_platform
from rankslice.framework.wording import joined, listed, quoted
from rankslice.frontend.formats import read_model

__all__ = ["METHODS", "Wanted", "explore", "parse_objectives"]

METHODS = ("exact", "nsga2", "exhaustive")

PAGE, TABLE, RECORD = "index.html", "front.csv", "front.json"
_MAPPING = "mapping-"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an exploration is to find, and how."""

    method: str = "exact"
    """One of :data:`METHODS`."""
    objectives: tuple[str, ...] = ("throughput", "energy", "memory")
    target_fps: float | None = None
    """Frames per second that come in."""
    keys: tuple[str, ...] = ()
    """Mapping keys that may be used; empty: those that were measured."""
    per_core: bool = False
    """Of CPUs, use single cores alone."""
    genetics: Genetics = field(default_factory=Genetics)
    coarse: bool = False
    """Move blocks of layers before single ones."""
    most_mappings: int = MOST_MAPPINGS
    """How many mappings ``exhaustive`` may try."""
    keep: int = 24
    """How many mappings of the front are shown at most."""
    evaluate: str = "model"
    """``model``, ``simulator`` or ``run``: what the front's figures are from."""
    runs: int = 8
    """How many mappings are run at most."""
    frames: int = 100
    """Of each run or simulation."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What a method has found."""

    archive: Archive
    evaluations: int
    method: str
    """In words."""


def parse_objectives(text: str) -> tuple[str, ...]:
    """Return the objectives of a list such as ``throughput,memory``.

    Raises:
        RankSliceError: one is unknown.
    """
    names = tuple(name.strip() for name in text.split(","))
    raise_mistakes(
        Mistake(
            "--objectives",
            f"there is no objective {quoted(name)}",
            nearest(name, OBJECTIVES) or f"expected {joined(OBJECTIVES, 'or')}",
        )
        for name in names
        if name not in OBJECTIVES
    )
    return names


def explore(
    model: Path,
    platform: str | Path,
    profile: Path | None,
    out: Path,
    wanted: Wanted = Wanted(),
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    force: bool = False,
    on_step: Callable[[str], None] = lambda step: None,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Exploration:
    """Find good mappings and write them: files for ``build``, a table, a record and a page.

    Args:
        model: the model file.
        platform: a YAML or AutoDiCE ``.txt`` file, or ``local`` for this machine.
        profile: what layers take, as ``rankslice profile`` measured it.
        out: the folder to make; it appears complete or not at all.
        wanted: what to find, and how.
        shapes: sizes of model inputs that the model leaves open.
        force: replace a folder of an older exploration at ``out``.
        on_step: told what is being done.
        on_progress: told a step, how much of it is done, and how much there is.

    Raises:
        RankSliceError: there is no mapping that can run, or no way to find one.
    """
    on_step("reading")
    problem = _problem(model, platform, profile, wanted, shapes)
    with new_folder(out, replaces=_foreign if force else None) as folder:
        objectives, left_out = can_be_had(problem, ("throughput", *wanted.objectives))
        found = _search(problem, objectives, wanted, on_progress)
        if not len(found.archive.values):
            raise RankSliceError(
                Mistake(
                    str(platform),
                    f"no mapping of {problem.model} that can run was found",
                    "look at the boards' memory, and at what their accelerators can run",
                )
            )
        on_step("working out what each mapping costs")
        choices = choices_of(problem, found.archive, wanted.keep)
        for choice in choices:
            _write_mapping(folder / choice.file, choice)
        failures: tuple[str, ...] = ()
        if wanted.evaluate == "run":
            measure = _Runs(model, platform, folder, wanted.frames, shapes)
            choices, failures = _measured(choices, wanted.runs, measure, on_progress)
        elif wanted.evaluate == "simulator":
            simulated = _Simulations(model, str(platform), profile, folder, wanted.frames, shapes)
            choices, failures = _measured(choices, len(choices), simulated, on_progress)
        exploration = Exploration(
            model=problem.model,
            platform=problem.platform,
            profile=problem.times_source,
            method=found.method,
            objectives=objectives,
            left_out=(*left_out, *failures),
            evaluations=found.evaluations,
            choices=choices,
            answer=answer(choices, wanted.target_fps),
            target_fps=wanted.target_fps,
        )
        _write(folder, exploration)
    return exploration


def _problem(
    model: Path,
    platform: str | Path,
    profile: Path | None,
    wanted: Wanted,
    shapes: Mapping[str, tuple[int, ...]] | None,
) -> Problem:
    """Return what is to be decided."""
    if profile is None:
        raise RankSliceError(
            Mistake(
                "--profile",
                "nobody has measured what layers take",
                f"measure it with: rankslice profile {model} --platform {platform} -o profile.json",
            )
        )
    graph = read_model(model, shapes).graph
    boards = read_platform(platform)
    return profiled_problem(
        read_profile(profile),
        graph,
        boards,
        keys=_keys(wanted, boards),
        default_engine=REFERENCE_ENGINES.get(graph.submodel_format, "onnxruntime"),
        source=str(profile),
    )


def _keys(wanted: Wanted, platform: Platform) -> tuple[str, ...] | None:
    """Return the mapping keys that may be used; ``None``: those that were measured."""
    if wanted.per_core and not wanted.keys:
        return default_keys(platform, per_core=True)
    return wanted.keys or None


def _foreign(folder: Path) -> str:
    """Return what shows that a folder is not, or not only, an exploration's; empty: nothing."""
    try:
        with (folder / RECORD).open("rb") as file:
            beginning = file.read(200)
    except OSError:
        return f"has no {RECORD}"
    if f'"{FORMAT}"'.encode() not in beginning:
        return f"has a {RECORD} that no exploration made"
    names = {path.name for path in folder.iterdir()} - {PAGE, TABLE, RECORD}
    foreign = sorted(name for name in names if not name.startswith(_MAPPING))
    return f"also holds {listed(foreign)}: move it elsewhere" if foreign else ""


def _search(
    problem: Problem,
    objectives: Sequence[str],
    wanted: Wanted,
    on_progress: Callable[[str, int, int], None],
) -> _Found:
    """Return what the wanted method finds."""
    counted = _Counted(scorer(problem, objectives))
    space = space_of(problem, objectives, coarse=wanted.coarse)
    genetics = wanted.genetics
    if wanted.method == "exhaustive":
        total = space.places ** (space.layers if space.blocks is None else space.blocks[-1] + 1)
        archive = exhaustive(
            counted,
            space,
            wanted.most_mappings,
            lambda done: on_progress("evaluating all mappings", done, int(total)),
        )
        return _Found(archive, counted.count, "trying every mapping")
    if wanted.method == "exact":
        return _exact(problem, objectives, counted, wanted, on_progress)
    seeds = np.concatenate([exact_seeds(problem), contiguous_seeds(problem)])
    archive = nsga2(
        counted,
        space,
        genetics,
        seeds,
        lambda done: on_progress("searching, generation by generation", done, genetics.generations),
    )
    return _Found(archive, counted.count, _genetics_in_words(wanted))


def _exact(
    problem: Problem,
    objectives: Sequence[str],
    counted: _Counted,
    wanted: Wanted,
    on_progress: Callable[[str, int, int], None],
) -> _Found:
    """Return what the exact planner finds."""
    archive = Archive(len(problem.layers), len(objectives))
    for number, row in enumerate(exact_sweep(problem, objectives, wanted.target_fps or 0.0), 1):
        on_progress("planning", number, number + 1)
        scores = counted(row[np.newaxis])
        possible = scores.excess <= 0
        archive.add(row[np.newaxis][possible], scores.values[possible], scores.groups[possible])
    words = "the exact planner: the best contiguous slices, for several limits"
    return _Found(archive, counted.count, words)


def _genetics_in_words(wanted: Wanted) -> str:
    genetics = wanted.genetics
    coarse = ", blocks of layers first" if wanted.coarse else ""
    return (
        f"NSGA-II, {genetics.generations} generations of {genetics.population},"
        f" seed {genetics.seed}{coarse}"
    )


class _Counted:
    """Scores populations, and counts the mappings in them."""

    def __init__(self, score: Score) -> None:
        self._score = score
        self.count = 0

    def __call__(self, population: Population) -> Scores:
        self.count += len(population)
        return self._score(population)


def _write_mapping(path: Path, choice: Choice) -> None:
    path.write_text(json.dumps(choice.mapping, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _write(folder: Path, exploration: Exploration) -> None:
    record = json.dumps(exploration_to_json(exploration), indent=1)
    (folder / RECORD).write_text(record + "\n", encoding="ascii")
    (folder / TABLE).write_text(choices_csv(exploration.choices), encoding="utf-8")
    (folder / PAGE).write_text(page_of(exploration), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Runs:
    """Builds and runs mappings, to measure them."""

    model: Path
    platform: str | Path
    folder: Path
    frames: int
    shapes: Mapping[str, tuple[int, ...]] | None

    def __call__(self, choice: Choice) -> Choice:
        """Return a choice with the figures of a run.

        Raises:
            RankSliceError: it could not be built or run.
        """
        with tempfile.TemporaryDirectory(prefix="rankslice-") as temporary:
            built = build(
                self.model,
                self.folder / choice.file,
                self.platform,
                Path(temporary) / "out",
                shapes=self.shapes,
            )
            if not all(is_this_machine(rank.host) for rank in built.plan.ranks):
                deploy(plan_deployment(built.folder))
            return with_measured(choice, run(prepare(built.folder, RunOptions(frames=self.frames))))


@dataclass(frozen=True, slots=True)
class _Simulations:
    """Simulates mappings."""

    model: Path
    platform: str
    profile: Path | None
    folder: Path
    frames: int
    shapes: Mapping[str, tuple[int, ...]] | None

    def __call__(self, choice: Choice) -> Choice:
        """Return a choice with the figures of a simulation; memory and energy as predicted."""
        found = simulate(
            self.model,
            mapping=self.folder / choice.file,
            platform=self.platform,
            profile=self.profile,
            shapes=self.shapes,
            traffic=Traffic(frames=self.frames),
        ).simulation
        figures = replace(
            choice.figures[0],
            source="simulated",
            throughput_fps=found.throughput_fps,
            latency_s=found.latency_ms["p50"] / 1e3,
        )
        return replace(choice, figures=(*choice.figures, figures))


def _measured(
    choices: Sequence[Choice],
    most: int,
    measure: Callable[[Choice], Choice],
    on_progress: Callable[[str, int, int], None],
) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
    """Return the choices, some with measured figures, and sentences about those that failed."""
    numbers = to_measure(choices, most)
    found = {choice.number: choice for choice in choices}
    failures = []
    for done, number in enumerate(numbers):
        on_progress("evaluating mappings", done, len(numbers))
        try:
            found[number] = measure(found[number])
        except RankSliceError as error:
            failures.append(f"Mapping {number} did not run: {error.mistakes[0]}.")
    return tuple(found[choice.number] for choice in choices), tuple(failures)


def to_measure(choices: Sequence[Choice], most: int) -> list[int]:
    """Return the numbers of the mappings worth a run, the most important first.

    These are the fastest of each number of boards; then others from fast to slow, spread over all.
    """
    fastest: dict[int, int] = {}
    for choice in choices:  # the fastest first
        fastest.setdefault(len(choice.boards), choice.number)
    first = sorted(fastest.values())[:most]
    others = [choice.number for choice in choices if choice.number not in first]
    count = min(most - len(first), len(others))
    spread = np.linspace(0, len(others) - 1, count).round() if count else np.empty(0)
    return [*first, *(others[int(index)] for index in spread)]


def with_measured(choice: Choice, finished: FinishedRun) -> Choice:
    """Return a choice with the figures of a real run beside the predicted ones."""
    summary = finished.summary
    memory: dict[str, float] = defaultdict(float)
    for stage, rank in zip(choice.stages, summary.ranks, strict=True):
        memory[stage.board] += rank.memory_mb
    figures = Figures(
        source="measured",
        throughput_fps=summary.throughput_fps,
        latency_s=summary.latency_ms["p50"] / 1e3,
        memory_bytes=round(1e6 * max(memory.values())),
        energy_j=None,
        energy_source=None,
    )
    stages = tuple(
        replace(stage, measured_s=rank.compute_ms["p50"] / 1e3)
        for stage, rank in zip(choice.stages, summary.ranks, strict=True)
    )
    return replace(choice, stages=stages, figures=(*choice.figures, figures))
