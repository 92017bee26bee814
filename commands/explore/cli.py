"""The options of ``rankslice explore``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankslice.commands.command import command, function
from rankslice.exploration.search.search_options import SearchOptions
from rankslice.framework.files.output_file import STDOUT, write_json
from rankslice.framework.option_records import about
from rankslice.session.shared_options import (
    Boards,
    Json,
    OnnxOrTflite,
    OpenSizes,
    SshConfig,
)
from rankslice.views.terminal import end_interrupted, progress_bars, screen, talk

if TYPE_CHECKING:
    from rankslice.exploration.results.candidates import Exploration
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


@function
def explore(
    model: OnnxOrTflite,
    platform: Boards = "local",
    out: Folder = Path("explored"),
    *,
    profile: ProfileToRead = None,
    search: SearchOptions,
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
    from rankslice.commands.explore.explore import Explorer
    from rankslice.session.profiling.span_bench import Listener

    explorer = Explorer(
        *(model, platform, out, search, profile, sizes.given, force, ssh_config),
        listener=listener or Listener(),
        on_progress=on_progress,
    )
    return explorer.explore()


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
            exploration = call(listener=listener, on_progress=on_progress)
        except KeyboardInterrupt:
            end_interrupted(unfinished_files(out))
    write_json(json, exploration_to_json(exploration))
    if json != STDOUT:
        print_exploration(exploration, str(out), screen)
