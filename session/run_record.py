"""The record of a run: what its page shows, and what the build folder keeps of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rankslice.backend.runtime.figures.acceleration import Acceleration
from rankslice.backend.runtime.figures.rank_figures import RankFigures
from rankslice.backend.runtime.options import Preprocessing
from rankslice.backend.runtime.summary.rates import frames_text
from rankslice.framework.files.hashing import file_sha256
from rankslice.framework.files.output_file import whole_file
from rankslice.framework.plan import Plan
from rankslice.framework.wording import joined, time_text
from rankslice.measurement.summary import RunRecord, RunSummary, run_text
from rankslice.measurement.verify import Verification
from rankslice.session.build_folder import REPORT, RUN
from rankslice.session.prepare import PreparedRun
from rankslice.session.versions import versions


def keep_record(prepared: PreparedRun, summary: RunSummary, command: Sequence[str]) -> None:
    record = run_record(prepared, summary, command)
    with suppress(OSError), whole_file(prepared.folder / RUN) as file:
        file.write(run_text(record).encode())


def run_record(prepared: PreparedRun, summary: RunSummary, command: Sequence[str]) -> RunRecord:
    return replace(
        record_of(prepared.folder, prepared.plan, summary),
        ended=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        command=tuple(command),
        versions=tuple(versions().items()),
        conditions=tuple(_conditions(prepared)),
    )


def record_of(folder: Path, plan: Plan, summary: RunSummary) -> RunRecord:
    """Return what figures alone tell of a run: not when, how and with what it ran."""
    verdict = summary.verify
    return RunRecord(
        ended="",
        model=plan.model.name,
        model_sha256=plan.model.sha256,
        job_sha256=plan.job.sha256,
        report_sha256=report_sha256(folder),
        command=(),
        versions=(),
        conditions=(),
        summary=summary,
        verify="" if verdict is None else verdict_text(verdict),
        notes=tuple(rank_notes(summary.ranks)),
    )


def report_sha256(folder: Path) -> str:
    """Return the hash of the report in a build folder; empty: there is none."""
    report = folder / REPORT
    return file_sha256(report) if report.is_file() else ""


def _conditions(prepared: PreparedRun) -> Iterator[tuple[str, str]]:
    """Yield conditions, besides the plan, that must be equal for a comparison of two runs."""
    options, source = prepared.options, prepared.source
    frames = " ".join(options.inputs)
    yield "frames from", f"{frames}, seed {options.seed}" if frames == "random" else frames
    yield "number of frames", "no end" if source.frames is None else str(source.frames)
    rate = None if options.pull else options.fps or source.fps
    timed = "as fast as they are taken" if rate is None else f"{rate:g} frames/s"
    yield "arrival", f"at the times in {options.arrivals}" if options.arrivals else timed
    yield "when the queue is full", options.overflow
    yield "window", "the plan's" if options.window is None else str(options.window)
    yield "engine optimisation", "off" if options.exact else "on"
    yield "ranks of one board", "share memory" if options.direct else "exchange messages"
    yield "wake before frames are due", "yes" if options.latency else "no"
    if options.preprocessing != Preprocessing():
        yield "images", str(options.preprocessing)


def rank_notes(ranks: Sequence[RankFigures]) -> Iterator[str]:
    for rank in ranks:
        if rank.accelerated is not None:
            yield f"rank {rank.rank}: {accelerated_text(rank.accelerated)}"
    for reason in sorted({rank.not_direct for rank in ranks} - {""}):
        yield f"ranks of one board exchange messages: {reason}"
    yield from _warm_ups(ranks)


def verdict_text(verdict: Verification) -> str:
    word = "passed" if verdict.passed else "failed"
    equal = "bit-equal" if verdict.bit_equal else f"within {verdict.max_rel_diff:.2g} of range"
    reason = f": {verdict.complaint}" if verdict.complaint else ""
    return f"verify {word}: {frames_text(verdict.frames)} compared, {equal}{reason}"


def _warm_ups(ranks: Sequence[RankFigures]) -> Iterator[str]:
    times = [f"rank {rank.rank} {time_text(rank.warm_up_ms)}" for rank in ranks if rank.warm_up_ms]
    if times:
        yield f"warm-up before frame 0: {', '.join(times)}"
    for rank in ranks:
        for reason in rank.not_warmed_up:
            yield f"rank {rank.rank} was not warmed up: {reason}"


def accelerated_text(found: Acceleration) -> str:
    """Say what runs on an accelerator: ``7 of 7 operators by XNNPACK, in 1 partition``."""
    if found.operators is None:
        text = f"{found.by} does not report which operators it runs"
    else:
        text = f"{found.operators} of {found.of} operators by {found.by}"
    if found.partitions is not None:
        text += f", in {found.partitions} partition{'s' if found.partitions != 1 else ''}"
    if found.tf32 is not None:
        text += ", float32 as TF32" if found.tf32 else ", without TF32"
    if found.uses:
        text += f", with {joined(found.uses)}"
    if found.others:
        text += f"; on the CPU: {', '.join(found.others)}"
    return text + "".join(_left_out(found.without))


def _left_out(without: Mapping[str, str]) -> Iterator[str]:
    for reason in dict.fromkeys(without.values()):
        names = [name for name, why in without.items() if why == reason]
        yield f"; no {joined(names, 'or')}: {reason}"
