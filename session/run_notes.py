"""What the record of a run says in words: notes on ranks, the verdict of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rankslice.backend.runtime.figures.acceleration import Acceleration
from rankslice.backend.runtime.figures.rank_figures import RankFigures
from rankslice.backend.runtime.summary.texts import frames_text
from rankslice.framework.wording import joined
from rankslice.measurement.verify import Verification


def rank_notes(ranks: Sequence[RankFigures]) -> Iterator[str]:
    """Yield what is to be said of ranks besides their figures."""
    for rank in ranks:
        if rank.accelerated is not None:
            yield f"rank {rank.rank}: {accelerated_text(rank.accelerated)}"
    for reason in sorted({rank.not_direct for rank in ranks} - {""}):
        yield f"ranks of one board exchange messages: {reason}"
    yield from _warm_ups(ranks)


def verdict_text(verdict: Verification) -> str:
    """Return whether results agree with those of the unsliced model."""
    word = "passed" if verdict.passed else "failed"
    equal = "bit-equal" if verdict.bit_equal else f"within {verdict.max_rel_diff:.2g} of range"
    reason = f": {verdict.complaint}" if verdict.complaint else ""
    return f"verify {word}: {frames_text(verdict.frames)} compared, {equal}{reason}"


def _warm_ups(ranks: Sequence[RankFigures]) -> Iterator[str]:
    """Yield how long the runs before frame 0 took, then what had none, and why."""
    times = [f"rank {rank.rank} {rank.warm_up_ms:.2f} ms" for rank in ranks if rank.warm_up_ms]
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
    """Yield for each reason what is not used: ``; no CUDA graph: it has If``."""
    for reason in dict.fromkeys(without.values()):
        names = [name for name, why in without.items() if why == reason]
        yield f"; no {joined(names, 'or')}: {reason}"
