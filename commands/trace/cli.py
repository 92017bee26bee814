"""The options of ``rankslice trace``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankslice.backend.runtime.options import IMAGE_OPTIONS, RunOptions
from rankslice.commands.command import command, function
from rankslice.framework.files.output_file import (
    OPERATORS,
    PAGE,
    PERFETTO,
    STDOUT,
    write_json,
    write_output,
)
from rankslice.framework.option_records import Writes, offered, option
from rankslice.framework.wording import on_one_line
from rankslice.session.shared_options import BuildFolder, Json, Launching
from rankslice.views.terminal import Bars, print_line, screen, show

if TYPE_CHECKING:
    from rankslice.commands.trace.trace import Traced

OfTheRun = Annotated[
    RunOptions,
    offered(
        *("inputs", "frames", "seed", "fps", "window", "direct", *IMAGE_OPTIONS),
        *("frame_timeout_s", "start_timeout_s"),
        frames={"least": 2},
    ),
]


@dataclass(frozen=True, slots=True)
class Traces:
    """What is traced, and which files have it."""

    operators: bool = option(
        False,
        "Also show the operators and kernels of each segment, and when accelerators ran them.",
    )
    csv: Path | None = option(
        None,
        "With --operators: write how long each operator took; '-': standard output.",
        Path,
        writes=Writes(OPERATORS),
        needs="operators",
    )
    failure: bool = option(
        False,
        "Show what the ranks of the last failed job did, without running anything.",
        excludes=(
            *("input", "frames", "fps", "window", "direct", "operators", *IMAGE_OPTIONS),
            *("frame_timeout_s", "start_timeout_s", "mpirun", "ssh_config"),
        ),
    )
    html: Path | None = option(
        None,
        "Write a page with a timeline (default: OUT/trace.html); '-': standard output.",
        Path,
        writes=Writes(PAGE),
    )
    perfetto: Path | None = option(
        None,
        "Write a trace that Perfetto opens; needs the extra 'perfetto'.",
        Path,
        writes=Writes(PERFETTO),
    )


@function
def trace(
    folder: BuildFolder,
    *,
    options: OfTheRun,
    traces: Traces,
    launching: Launching,
    typed: Sequence[str] = (),
    on_prepared: Callable[[int | None], Callable[[int], None]] = lambda frames: lambda count: None,
    on_traced: Callable[..., Any] = lambda traced: None,
) -> Traced:
    """Run the job of a build folder, and return where the time of each frame goes.

    ``typed`` is the command of the run's record. ``on_prepared`` is called with the number of
    frames, if it is known; what it returns, with the number of those that have come out.
    ``on_traced`` is called before files are written.

    Raises:
        RankSliceError: something does not fit, the job failed, or too few frames came out.
    """
    from rankslice.commands.trace import trace as tracing
    from rankslice.measurement.trace.traced_operators import operators_csv
    from rankslice.views.perfetto_file import check_perfetto

    if traces.perfetto is not None:
        check_perfetto("--perfetto")
    if traces.failure:
        traced = tracing.trace_failure(folder)
    else:
        prepared = tracing.prepare_trace(folder, options, launching, operators=traces.operators)
        on_completed = on_prepared(prepared.source.frames)
        traced = tracing.trace_run(prepared, on_completed, command=typed)
    on_traced(traced)
    if traces.html is not None:
        tracing.write_page(traced, traces.html)
    if traces.csv is not None:
        write_output(traces.csv, operators_csv(traced.operators), "--csv")
    if traces.perfetto is not None:
        tracing.write_perfetto(traced, traces.perfetto)
    return traced


@command(
    "trace",
    "out --frames 200",
    "out --input photos/ --perfetto trace.perfetto-trace",
    "out --failure",
    calls=trace,
)
def show_trace(
    call: Callable[..., Traced], folder: BuildFolder, traces: Traces, json: Json = None
) -> None:
    from rankslice.commands.trace.trace import page_of, write_page

    page = traces.html or page_of(folder)
    is_shown = STDOUT not in (page, traces.perfetto, traces.csv, json)
    with Bars() as bars:

        def show_traced(traced: Traced) -> None:
            bars.end()
            if is_shown:  # even if there is no room to write it
                show(screen, *traced.parts)

        begin = partial(bars.counting, "running")
        traced = call(typed=("rankslice", *sys.argv[1:]), on_prepared=begin, on_traced=show_traced)
    if traces.html is None:
        write_page(traced, page)
    write_json(json, traced.to_json())
    if is_shown:
        print_line(screen, on_one_line(f"timeline: {page}"))
        if traces.perfetto is not None:
            print_line(screen, on_one_line(f"for Perfetto: {traces.perfetto}"))
