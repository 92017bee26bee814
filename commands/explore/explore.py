"""``rankslice explore``: which mapping is best, as files, a table and a page."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import cast

from rankslice.commands.profile.show import refinement_text
from rankslice.exploration.objectives import available_objectives
from rankslice.exploration.problem.devices import default_keys
from rankslice.exploration.problem.make_problem import measured_keys, profiled_problem
from rankslice.exploration.problem.problem import Problem, with_turns
from rankslice.exploration.problem.runtime_costs import FrameBytes, bounds_text
from rankslice.exploration.problem.split_problem import Splitter
from rankslice.exploration.results.answer import answer, routes, routes_text, strategies_text
from rankslice.exploration.results.candidates import Candidate, Exploration, Strategy
from rankslice.exploration.results.front_files import FORMAT, candidates_csv, exploration_to_json
from rankslice.exploration.search.methods import (
    SearchResult,
    copies,
    find_mappings,
    replicas_text,
    scaling,
)
from rankslice.exploration.search.planned import limiting_pairs
from rankslice.exploration.search.search_options import SearchOptions
from rankslice.exploration.search.strategies import compared, other_strategies
from rankslice.exploration.times.segment_times import KnownTimes
from rankslice.framework.engines import default_engine
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.new_folder import new_folder, other_entries, other_maker
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.files.output_file import JSON, check_output
from rankslice.framework.platform import Platform, Wire
from rankslice.framework.profile import Profile
from rankslice.framework.specs.keys import parse_key
from rankslice.framework.specs.read_platform import PlatformSource, read_platform
from rankslice.framework.wording import digits, joined
from rankslice.frontend.formats import Model, formats_of, model_sha256, read_model
from rankslice.frontend.formats.input_shapes import NO_SIZES, GivenSizes
from rankslice.frontend.partition.partition import SpanSegments
from rankslice.session.building.planning import check_can_be_split, read_profile, wire_mistakes
from rankslice.session.exploring.evaluators import (
    MappingRunner,
    MappingSimulator,
    RunCache,
    mapping_text,
)
from rankslice.session.profiling.profile_options import ProfileOptions
from rankslice.session.profiling.profiler import Profiler, profile_model
from rankslice.session.profiling.span_bench import Listener
from rankslice.session.profiling.time_limit import left_out_of
from rankslice.session.shared_options import OpenSizes
from rankslice.views.exploration_page import page_of

PAGE, TABLE, RECORD = "index.html", "front.csv", "front.json"
PLATFORM = "platform.yaml"
PROFILE, RUNS = "profile.json", "runs.jsonl"
"""What takes long to make: it lies beside the folder until that is complete."""

_MAPPING = "mapping-"


def unfinished_files(out: Path) -> tuple[Path, ...]:
    """Return the files that an interrupted exploration left beside its folder."""
    return tuple(file for name in (PROFILE, RUNS) if (file := _beside(out, name)).exists())


_ROUGH = 0.5
"""Share of a frame's time from which what the runtime is counted with makes rates rough."""


def _nothing(platform: str, problem: Problem, result: SearchResult) -> Mistake:
    if result.failures:
        return Mistake(
            platform,
            f"none of the {len(result.failures)} mappings of {problem.model} that were tried ran",
            f"of the first one it was said: {result.failures[0].reason}",
        )
    return Mistake(
        platform,
        f"no mapping of {problem.model} that can run was found",
        "look at the boards' memory, and at what their accelerators can run",
    )


def _beside(out: Path, name: str) -> Path:
    """Return where a file of an exploration's folder lies until the folder is complete."""
    path = Path(os.path.abspath(out))  # noqa: PTH100 - resolve() would follow a link at the end
    return path.with_name(f"{path.name}.{name}")


def _begun(out: Path, name: str) -> Path:
    """Return where a file lies until the folder is complete, begun with an older folder's."""
    file = _beside(out, name)
    check_output(file, "--out", JSON, may_be_stream=False)
    if not file.exists() and (out / name).is_file():
        shutil.copyfile(out / name, file)
    return file


@dataclass(frozen=True)
class Explorer:
    """Explores mappings of a model on a platform; without a profile, measures its layers first."""

    file: Path
    """Of the model."""
    platform: PlatformSource
    """A YAML or AutoDiCE ``.txt`` file, or ``local`` for this machine."""
    out: Path
    """The folder to make; it appears complete or not at all. What was measured lies beside it
    meanwhile, and the next exploration goes on with it."""
    search: SearchOptions
    profile_file: Path | None = None
    sizes: GivenSizes = NO_SIZES
    """What is given of sizes that the model leaves open."""
    force: bool = False
    """Replace a folder of an older exploration, and go on with what it measured."""
    ssh_config: Path | None = None
    listener: Listener = field(default_factory=Listener)
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None

    @cached_property
    def model(self) -> Model:
        return read_model(self.file, self.sizes)

    @cached_property
    def owned(self) -> Platform:
        return read_platform(self.platform)

    @cached_property
    def boards(self) -> Platform:
        """Those that are explored: with ``--scaling``, copies of one that is owned."""
        if self.search.scaling is None:
            return self.owned
        return copies(self.owned, self.search.like, self.search.scaling[1])

    @cached_property
    def wired(self) -> Platform:
        """The boards, with what their links carry as --wire says.

        Raises:
            RankSliceError: the model's tensors cannot be converted so.
        """
        boards, wire = self.boards, self.search.wire
        if wire == "auto":
            pairs = limiting_pairs(self.problem_on(boards.with_wire("float16")))
            boards = boards.with_wire("none").with_wire("float16", pairs)
        elif wire is not None:
            boards = boards.with_wire(cast("Wire", wire))
        types = {wire or "none", *boards.wires} - {"auto", "none"}
        where = f"{boards.name}: links" if wire is None else "--wire"
        if types and len(boards.boards) > 1:
            raise_mistakes(wire_mistakes(self.model, sorted(types), where))
        return boards

    @cached_property
    def profile(self) -> Profile:
        return self._measured() if self.profile_file is None else read_profile(self.profile_file)

    def explore(self) -> Exploration:
        """Find good mappings and write them: files for ``build``, a table, a record and a page.

        Raises:
            RankSliceError: there is no mapping that can run, or no way to find one.
        """
        wanted, out = self.search, self.out
        self.model  # noqa: B018 - what is wrong with it is said before the folder is begun
        if wanted.splits:
            check_can_be_split(self.model, "--splits")
        replaces = _foreign if self.force else None
        with new_folder(out, replaces=replaces, kind="folders of explorations") as folder:
            problem = self.problem_on(self.wired)
            more = ("latency",) if wanted.surge_fps is not None or wanted.splits else ()
            names = tuple(dict.fromkeys(("throughput", *wanted.objectives, *more)))
            objectives, left_out = available_objectives(problem, names)
            result, strategies = self._searched(problem, objectives)
            pair = None
            about_pair: tuple[str, ...] = ()
            if wanted.fps is not None and wanted.surge_fps is not None:
                pair = routes(result.candidates, wanted.fps, wanted.surge_fps)
                about_pair = (*routes_text(pair, wanted.fps, wanted.surge_fps),)
            exploration = Exploration(
                model=problem.model,
                platform=problem.platform,
                profile=problem.times_source,
                method=result.method,
                objectives=objectives,
                left_out=left_out,
                evaluations=result.evaluations,
                candidates=result.candidates,
                answer=(
                    *answer(result.candidates, wanted.fps),
                    *about_pair,
                    *([] if wanted.splits else replicas_text(problem, result.candidates)),
                    *strategies_text(strategies),
                    *result.notes,
                    *self._remarks(problem, result.candidates[0]),
                ),
                target_fps=wanted.fps,
                surge_fps=wanted.surge_fps,
                routes=() if pair is None else tuple(candidate.number for candidate in pair),
                scaling=scaling(self.owned, self.problem_on, wanted, self.on_progress),
                tried_by=None if wanted.evaluate == "model" else wanted.evaluate,
                tried=result.tried,
                failures=result.failures,
                strategies=strategies,
            )
            _write(folder, exploration)
            if self.search.wire is not None and self.wired.default_link is not None:
                (folder / PLATFORM).write_text(self._platform_text(), encoding="utf-8")
            for name in (PROFILE, RUNS):
                # What was measured now, or else for the older folder.
                if file := next(filter(Path.is_file, (_beside(out, name), out / name)), None):
                    shutil.copyfile(file, folder / name)
        for file in unfinished_files(out):
            file.unlink()
        return exploration

    def _searched(
        self, problem: Problem, objectives: tuple[str, ...]
    ) -> tuple[SearchResult, tuple[Strategy, ...]]:
        """Return the mappings; with --splits, those of all strategies, and these."""
        wanted, platform, attempt = self.search, self.platform, self._attempt(problem)
        others: list[Candidate] = []
        if wanted.splits:
            frame_bytes = FrameBytes(self.profile.seen)
            splitter = Splitter(problem, self.model, self.wired, frame_bytes)
            others = other_strategies(splitter, self.on_progress)
        result = find_mappings(problem, objectives, wanted, attempt, self.on_progress)
        if not result.candidates:
            where = platform.name if isinstance(platform, Platform) else str(platform)
            raise RankSliceError(_nothing(where, problem, result))
        return compared(result, others, objectives, attempt) if wanted.splits else (result, ())

    def problem_on(self, boards: Platform) -> Problem:
        """Return the problem of putting the model on some boards."""
        keys = tuple(dict.fromkeys(self.search.accelerators))
        if self.search.per_core and not keys:
            keys = default_keys(boards, per_core=True)
        if self.search.scaling is not None:
            # What was measured on the board that all are like.
            first = boards.boards[0].name
            measured = keys or measured_keys(self.profile, boards)
            own = [key for key in measured if parse_key(key, key).board == first]
            keys = tuple(
                f"{board.name}{key.removeprefix(first)}" for board in boards.boards for key in own
            )
        problem = profiled_problem(
            self.profile,
            self.model.graph,
            boards,
            keys=keys or None,
            default_engine=default_engine(formats_of(self.model.graph)[0]),
            source=str(self.profile_file or self.out / PROFILE),
        )
        if fps := self.search.fps:
            problem = replace(problem, between_frames_s=1 / fps)
        return with_turns(problem, self.search.turns) if self.search.turns > 1 else problem

    def _platform_text(self) -> str:
        """Return the platform file with the links as they were explored."""
        from rankslice.framework.specs.platform_yaml import with_links_of  # takes its time

        assert not isinstance(self.platform, Platform)
        file = Path(self.platform)
        return with_links_of(self.wired, read_text(file, "a platform"), file.name)

    def _measured(self) -> Profile:
        """Return the profile, measured as by ``rankslice profile``, or known already."""
        file = _begun(self.out, PROFILE)
        missing = "missing times of layers" if file.exists() else "the times of all layers"
        self.listener.note(
            f"no --profile is given: {missing} are measured first, and kept as {self.out / PROFILE}"
        )
        profiler = Profiler(
            self.file,
            self.platform,
            file,
            ProfileOptions(
                accelerators=self.search.accelerators,
                per_core=self.search.per_core,
                sizes=OpenSizes(
                    dict(self.sizes.fixed), dict(self.sizes.at_most), self.sizes.signature
                ),
                ssh_config=self.ssh_config,
            ),
            listener=self.listener,
        )
        with profiler:
            refinement = profile_model(profiler)
        if refinement is not None:
            self.listener.note(refinement_text(refinement))
        return profiler.profile

    def _attempt(self, problem: Problem) -> Callable[[Candidate], Candidate] | None:
        """Return the evaluator of mappings; ``None``: the cost model, all mappings at once."""
        if self.search.evaluate == "simulator":
            return MappingSimulator(
                self.model,
                self.wired,
                KnownTimes(self.profile),
                problem.times_source,
                problem,
                self.search.frames,
            )
        if self.search.evaluate == "run":
            boards = hashlib.sha256(repr(self.wired).encode()).hexdigest()
            return MappingRunner(
                self.file,
                self.wired,
                problem,
                RunCache(_begun(self.out, RUNS), model_sha256(self.model.path), boards),
                self.search.frames,
                self.sizes,
                self.ssh_config,
            )
        return None

    def _about_wires(self) -> Iterator[str]:
        names = [board.name for board in self.wired.boards]
        pairs = [
            f"{one} and {other} ({link.wire})"
            for one, other in itertools.combinations(names, 2)
            if (link := self.wired.link(one, other)[0]) and link.wire != "none"
        ]
        if pairs:
            yield (
                f"Float32 tensors are converted between {joined(pairs)}: give 'rankslice build'"
                f" --platform {self.out / PLATFORM}."
            )
        elif self.search.wire == "auto":
            yield "No link limits the rate, so nothing is converted between boards."

    def _remarks(self, problem: Problem, fastest: Candidate) -> Iterator[str]:
        """Yield what predictions are worth, and what a newcomer may wonder about."""
        segments = SpanSegments(self.model.graph)
        if self.search.scaling is not None and self.owned.default_link is None:
            yield "The boards are taken to be linked at 1000 Mbit/s, with a latency of 0.2 ms."
        if self.search.wire is not None:
            yield from self._about_wires()
        keys = {kind.key for kind in problem.kinds}
        for kind in self.profile.kinds:
            left_out = left_out_of(kind, self.profile.model, lambda s: not segments.fault(*s))
            if left_out is not None and keys & {*kind.keys} and (text := left_out.meaning()):
                yield f"{text}; `rankslice profile -o {problem.times_source}` measures on"
        bounds = [tensor.name for tensor in problem.tensors if tensor.is_bound]
        if bounds and len({device.board for device in problem.devices}) > 1:
            text = bounds_text(bounds)
            yield f"{text[0].upper()}{text[1:]}."
        only = problem.devices[0]
        if len(problem.devices) == 1 and len(only.cores) > 1 and not self.search.accelerators:
            yield (
                f"There is only one accelerator, {only.key}, so there is nothing to distribute:"
                " --per-core uses each of its cores as an accelerator."
            )
        period_s = 1 / fastest.best_known.throughput_fps
        runtime_s = problem.overheads.frame_s + problem.overheads.slice_s
        if fastest.best_known.basis != "measured" and runtime_s > _ROUGH * period_s:
            yield (
                "Rates are rough for layers this short: of the"
                f" {digits(1e3 * period_s)} ms per frame of the fastest mapping,"
                f" {digits(1e3 * runtime_s)} ms are the time of the runtime on another machine."
            )


def _foreign(folder: Path) -> str:
    """Return why a folder is not, or not only, an exploration's; empty: it is."""
    own = {PAGE, TABLE, RECORD, PROFILE, RUNS, PLATFORM}
    return other_maker(folder, RECORD, FORMAT, "exploration") or other_entries(
        folder, lambda name: name in own or name.startswith(_MAPPING)
    )


def _write(folder: Path, exploration: Exploration) -> None:
    record = json.dumps(exploration_to_json(exploration), indent=1)
    (folder / RECORD).write_text(record + "\n", encoding="ascii")
    (folder / TABLE).write_text(candidates_csv(exploration.candidates), encoding="utf-8")
    for candidate in exploration.candidates:
        (folder / candidate.file).write_text(mapping_text(candidate), encoding="utf-8")
    (folder / PAGE).write_text(page_of(exploration), encoding="utf-8")
