"""Plans for the boards that are left when some are lost: ``build --survive``."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from rankslice.exploration.cost.prediction import Prediction, predict
from rankslice.exploration.problem.devices import Team
from rankslice.exploration.problem.make_problem import measured_keys, profiled_problem
from rankslice.exploration.problem.problem import Problem, with_turns
from rankslice.exploration.results.candidates import Candidate
from rankslice.exploration.search.methods import find_mappings
from rankslice.exploration.search.search_options import SearchOptions
from rankslice.exploration.search.seeds import planned_mappings
from rankslice.framework.engines import default_engine
from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.mapping import Mapping as LayerMapping
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Platform
from rankslice.framework.profile import Profile
from rankslice.framework.specs.read_platform import PlatformSource
from rankslice.framework.wording import joined, quoted
from rankslice.frontend.formats import Model, formats_of
from rankslice.frontend.partition.partition import kept
from rankslice.session.build_folder import SURVIVAL_FILES
from rankslice.session.building.build_options import BuildOptions
from rankslice.session.building.planning import Planned
from rankslice.session.survival import (
    PLATFORMS,
    PROFILE,
    REPRESENTATIVE,
    BuiltWith,
    Fallback,
    SurvivalRecord,
    write_survival,
)

_OPTION, _ALL = "--survive", "all"


@dataclass(frozen=True)
class Replanning:
    """Finds mappings of a model for some of a platform's boards."""

    model: Model
    platform: Platform
    profile: Profile
    platform_file: Path
    source: str
    """Name of the profile's file, for messages."""
    source_board: str | None = None
    most_turns: int = 1
    """How many ranks may take turns."""

    @cached_property
    def _engine(self) -> str:
        return default_engine(formats_of(self.model.graph)[0])

    def mapping(self, lost: Iterable[str]) -> LayerMapping:
        """Return the fastest mapping that does without some boards.

        Raises:
            RankSliceError: there is none.
        """
        gone = sorted(lost)
        text = f"without {joined(gone)}"
        if self.source_board in gone:
            found = f"{text} no frame enters: that is what --source-board says"
            raise RankSliceError(Mistake(_OPTION, found, "name other boards there or here"))
        boards = tuple(board for board in self.platform.boards if board.name not in gone)
        links = tuple(link for link in self.platform.links if not {*link[:2]} & {*gone})
        left = replace(self.platform, boards=boards, links=links)
        if not boards:
            raise RankSliceError(Mistake(_OPTION, f"{text} no board is left", "keep one"))
        if not measured_keys(self.profile, left):
            names = joined([board.name for board in boards])
            found = f"{text} there is no accelerator that {self.source} measured"
            raise RankSliceError(Mistake(_OPTION, found, f"profile the model on {names}, too"))
        candidates = self._candidates(left)
        if not candidates:
            raise RankSliceError(self._nothing(left, text))
        return LayerMapping(text, candidates[0].entries)

    def _candidates(self, platform: Platform) -> tuple[Candidate, ...]:
        """Return mappings, the fastest first: searched for only if the planner finds none."""
        problem = self._problem(platform)
        if planned := planned_mappings(problem, self.source_board):
            return planned
        options = SearchOptions(objectives=("throughput",), turns=self.most_turns)
        candidates = find_mappings(problem, options.objectives, options).candidates
        wanted = self.source_board
        return tuple(
            candidate for candidate in candidates if wanted is None or wanted in candidate.boards
        )

    def _problem(self, platform: Platform, keys: tuple[str, ...] | None = None) -> Problem:
        problem = profiled_problem(
            self.profile,
            self.model.graph,
            platform,
            keys=keys,
            default_engine=self._engine,
            source=self.source,
        )
        is_searched = keys is None and self.most_turns > 1
        return with_turns(problem, self.most_turns) if is_searched else problem

    def _nothing(self, platform: Platform, text: str) -> Mistake:
        boards = tuple(replace(board, memory_mb=None) for board in platform.boards)
        endless = self._candidates(replace(platform, boards=boards))
        has = {board.name: board.memory_mb for board in platform.boards}
        name = quoted(self.model.graph.name)
        if not endless:
            also = "" if self.source_board is None else f" with layers on {self.source_board}"
            found = f"{text} no mapping of {name} was found that can run{also}"
            return Mistake(_OPTION, found, "look at what the accelerators of the others can run")
        sizes = joined(
            [f"{board} {size:.0f} MB" for board, size in has.items() if size is not None]
        )
        found = f"{text} {name} does not fit into the memory of the others"
        return Mistake(_OPTION, found, f"memory_mb of the platform: {sizes}; keep it")

    def predict(self, plan: Plan) -> Prediction:
        """Return the cost model's prediction for a plan of one route.

        Raises:
            RankSliceError: the profile does not know all of its accelerators.
        """
        problem = self._problem(self.platform, tuple(rank.key for rank in plan.ranks))
        ranks_of: dict[str, list[int]] = {}
        for segment in plan.segments:
            for layer in segment.layers:
                ranks_of.setdefault(layer, []).append(segment.rank)
        owners = [tuple(ranks_of[layer]) for layer in problem.layers]
        teams = {ranks: None for ranks in owners if len(ranks) > 1}
        numbers = {ranks: len(plan.ranks) + number for number, ranks in enumerate(teams)}
        numbers |= {(rank.rank,): rank.rank for rank in plan.ranks}
        problem = replace(problem, teams=tuple(Team(team, _weights(plan, team)) for team in teams))
        return predict(problem, np.array([numbers[ranks] for ranks in owners], np.int64))


def _weights(plan: Plan, ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(len(plan.ranks[rank].turns.positions) for rank in ranks)


def _most_turns(plan: Plan) -> int:
    """Return the largest number of ranks that take turns with each other."""
    layers = [frozenset(segment.layers) for segment in plan.segments]
    return max((sum(own == other for other in layers) for own in layers), default=1)


def _standby_mistakes(
    plans: Iterable[tuple[str, Prediction]], platform: Platform
) -> Iterator[Mistake]:
    """Yield the boards whose memory does not suffice for some plans at once.

    Args:
        plans: what each is called in messages, and what it costs.
        platform: with the boards' memory.
    """
    boards = {board.name: board.memory_mb for board in platform.boards}
    needs: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for text, prediction in plans:
        for board in prediction.boards:
            needs[board.name].append((text, board.memory_bytes / 1e6))
    for name, sizes in sorted(needs.items()):
        total, has = sum(size for _, size in sizes), boards[name]
        if has is not None and total > has:
            parts = joined([f"{size:.0f} MB {text}" for text, size in sizes])
            yield Mistake(
                "--standby",
                f"all plans at once need {total:.0f} MB of {name}, which has {has:.0f} MB",
                f"that is {parts}; build without --standby, or for fewer boards",
            )


def replanning_of(planned: Planned, platform: PlatformSource, options: BuildOptions) -> Replanning:
    """Return the planner for the loss of boards.

    Raises:
        RankSliceError: the options do not suffice for it, or no other job can go on with the
            model's frames.
    """
    if isinstance(platform, Platform):
        found = "the platform is kept for later plans, so it must be a file"
        raise RankSliceError(Mistake("survive", found, "give the path of a platform file"))
    if not options.survive:
        found = "there is one plan only"
        raise RankSliceError(Mistake("--standby", found, "give --survive, too"))
    if planned.profile is None or options.profile is None:
        raise RankSliceError(
            Mistake(
                _OPTION,
                "plans for fewer boards rest on a profile, and none is given",
                "measure the model on all boards with `rankslice profile`, and give --profile",
            )
        )
    if options.surge is not None:
        found = "a job with two routes is not started again without a board"
        raise RankSliceError(Mistake(_OPTION, found, "build without --surge"))
    if planned.sent:
        found = "tensors are converted between boards, and without a board these would be others"
        raise RankSliceError(Mistake(_OPTION, found, "keep float32 with --wire none"))
    if planned.plan.made:
        found = "the mapping splits layers, and plans for fewer boards give each layer to one board"
        raise RankSliceError(Mistake(_OPTION, found, "build without --survive"))
    graph = planned.model.graph
    raise_mistakes(kept(graph, graph.layers, "a job and the next one", "build without --survive"))
    return Replanning(
        planned.model,
        planned.platform,
        planned.profile,
        Path(platform),
        options.profile.name,
        options.source_board,
        _most_turns(planned.plan),
    )


def surviving(plan: Plan, platform: Platform, survive: Iterable[str]) -> tuple[str, ...]:
    """Return the boards that may be lost, in the order of the ranks; ``all``: each of them.

    Raises:
        RankSliceError: the plan has no such board, or the platform has one board only.
    """
    used = [*dict.fromkeys(rank.board for rank in plan.ranks)]
    wanted = [*dict.fromkeys(survive)]
    known = {board.name for board in platform.boards}
    unused = f"ranks are on {joined(used)}"
    raise_mistakes(
        Mistake(_OPTION, f"no rank is on board {quoted(board)}", unused)
        if board in known
        else Mistake(_OPTION, f"no board {quoted(board)}", nearest(board, used) or unused)
        for board in wanted
        if board not in used and board != _ALL
    )
    if len(known) == 1:
        found = f"{joined(used)} is the only board, so no ranks are left without it"
        raise RankSliceError(Mistake(_OPTION, found, "expected a platform of several boards"))
    return (
        tuple(used)
        if _ALL in wanted and _ALL not in used
        else tuple(board for board in used if board in wanted)
    )


def survival_record(
    replanning: Replanning,
    plan: Plan,
    fallbacks: Mapping[str, Plan],
    options: BuildOptions,
) -> SurvivalRecord:
    """Return the record of plans for lost boards.

    Raises:
        RankSliceError: all plans at once do not fit into the boards' memory, which was asked for.
    """
    predictions = {board: replanning.predict(other) for board, other in fallbacks.items()}
    now = None
    try:
        now = replanning.predict(plan)
    except RankSliceError:
        if options.standby:
            raise
    if options.standby and now is not None:
        named = [(f"without {board}", prediction) for board, prediction in predictions.items()]
        raise_mistakes(_standby_mistakes([("with all boards", now), *named], replanning.platform))
    return SurvivalRecord(
        model_sha256=plan.model.sha256,
        standby=options.standby,
        predicted_fps=None if now is None else now.throughput_fps,
        fallbacks=tuple(
            Fallback(board, prediction.throughput_fps) for board, prediction in predictions.items()
        ),
        options=BuiltWith(
            platform=PLATFORMS[replanning.platform_file.suffix.lower() == ".txt"],
            shape=dict(options.sizes.fixed),
            at_most=dict(options.sizes.at_most),
            share_cores=options.share_cores,
            source_board=options.source_board,
            literally=options.literally,
            quantize=options.quantisation.kind,
            compress=options.compress,
            pixels=options.quantisation.preprocessing.resolved(),
            most_turns=replanning.most_turns,
        ),
    )


def write_survival_files(
    folder: Path, record: SurvivalRecord, platform: Path, options: BuildOptions
) -> None:
    write_survival(folder, record)
    files = folder / SURVIVAL_FILES
    files.mkdir()
    assert options.profile is not None
    shutil.copyfile(options.profile, files / PROFILE)
    shutil.copyfile(platform, files / record.options.platform)
    if (frames := options.quantisation.representative) is not None:
        (files / REPRESENTATIVE).symlink_to(frames.resolve())
