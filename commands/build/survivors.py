"""What ``build --survive`` checks, and writes besides the build folders for lost boards."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rankslice.commands.build.replanning import Replanning, check_standby, most_turns
from rankslice.commands.planning import Planned
from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Platform
from rankslice.framework.wording import joined, quoted
from rankslice.frontend.partition.in_turns import kept
from rankslice.session.build_folder import SURVIVAL_FILES
from rankslice.session.survival import (
    PLATFORMS,
    PROFILE,
    REPRESENTATIVE,
    BuiltWith,
    Fallback,
    Pixels,
    Sizes,
    SurvivalRecord,
    write_survival,
)

if TYPE_CHECKING:
    from rankslice.commands.build.build import BuildOptions

_OPTION, _ALL = "--survive", "all"


def replanning_of(planned: Planned, platform: Platform, options: BuildOptions) -> Replanning:
    """Return what finds the plans without boards.

    Raises:
        RankSliceError: the options do not suffice for it, or no other job can go on with the
            model's frames.
    """
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
    graph = planned.model.graph
    raise_mistakes(kept(graph, graph.layers, "a job and the next one", "build without --survive"))
    return Replanning(
        planned.model,
        platform,
        planned.profile,
        options.profile.name,
        options.source_board,
        most_turns(planned.plan),
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
    platform: str | Path,
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
        named = [(f"without {board}", found) for board, found in predictions.items()]
        raise_mistakes(check_standby([("with all boards", now), *named], replanning.platform))
    return SurvivalRecord(
        model_sha256=plan.model.sha256,
        standby=options.standby,
        predicted_fps=None if now is None else now.throughput_fps,
        fallbacks=tuple(
            Fallback(board, found.throughput_fps) for board, found in predictions.items()
        ),
        options=_built_with(Path(platform), options, replanning.most_turns),
    )


def _built_with(platform: Path, options: BuildOptions, turns: int) -> BuiltWith:
    quantisation = options.quantisation
    pixels = quantisation.preprocessing
    return BuiltWith(
        platform=PLATFORMS[platform.suffix.lower() == ".txt"],
        shape=tuple(Sizes(*item) for item in options.sizes.fixed.items()),
        at_most=tuple(Sizes(*item) for item in options.sizes.at_most.items()),
        share_cores=options.share_cores,
        source_board=options.source_board,
        literally=options.literally,
        quantize=quantisation.kind,
        pixels=Pixels(pixels.layout, pixels.size, pixels.mean, pixels.scale),
        most_turns=turns,
    )


def write_survival_files(
    folder: Path, record: SurvivalRecord, platform: str | Path, options: BuildOptions
) -> None:
    write_survival(folder, record)
    files = folder / SURVIVAL_FILES
    files.mkdir()
    assert options.profile is not None
    shutil.copyfile(options.profile, files / PROFILE)
    shutil.copyfile(platform, files / record.options.platform)
    if (frames := options.quantisation.representative) is not None:
        (files / REPRESENTATIVE).symlink_to(frames.resolve())
