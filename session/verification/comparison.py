"""A run's results against those of the unsliced model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rankslice.backend.runtime.sinks.results import Results
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan
from rankslice.framework.wording import quoted
from rankslice.measurement.verify import Comparison, ConversionEffect, Verification, explained
from rankslice.session.build_folder import built_model, reference_model
from rankslice.session.prepare import PreparedRun
from rankslice.session.verification.first_difference import agreement_at_cuts, first_difference
from rankslice.session.verification.unsliced_outputs import unsliced_outputs


def find_reference(prepared: PreparedRun) -> Path:
    """Return the unsliced model of a build folder, converted if its slices are."""
    if not prepared.source.can_replay:
        found = f"needs each frame twice, and {' '.join(prepared.options.inputs)} gives it once"
        raise RankSliceError(Mistake("--verify", found, "record frames to a file and verify those"))
    return reference_model(prepared.folder, prepared.plan, "verify a run")


def verified(
    prepared: PreparedRun,
    reference: Path,
    results: Results,
    arrivals: Sequence[int],
    tolerance: float | None = None,
    on_verified: Callable[[int], None] = lambda count: None,
    on_search: Callable[[], None] = lambda: None,
) -> Verification:
    """Compare the results of a run with the unsliced model; explain a difference.

    If tensors are converted between boards, so they are in that model. Then the results are
    compared with those of the model without conversions, too, which decides nothing.
    """
    exact, plan = prepared.options.exact, prepared.plan
    names = [spec.name for spec in results.outputs]
    comparison = Comparison(names)
    _compare(comparison, prepared, reference, results, arrivals, on_verified)
    verdict = comparison.verdict(
        exact=exact, rounds=_rounds(plan), splits=plan.splits_layers, tolerance=tolerance
    )
    if plan.conversions:
        original = reference_model(prepared.folder, plan, "verify a run", converts=False)
        effect = ConversionEffect(names)
        _compare(effect, prepared, original, results, arrivals)
        verdict = replace(verdict, unconverted=effect.result())
    arrival_of = dict(zip(results.numbers, arrivals, strict=True))
    if verdict.inconclusive:
        on_search()
        proven, sentence = agreement_at_cuts(prepared, results.numbers[0], arrival_of, tolerance)
        if not proven:
            return replace(verdict, first_difference=sentence)
        sentence = f"{verdict.complaint}; {sentence}"
        return replace(verdict, passed=True, complaint="", first_difference=sentence)
    if random := "" if verdict.passed else _unseeded(prepared):
        reason = f"layer {quoted(random)} draws random numbers without a seed, so no two runs agree"
        return replace(verdict, complaint=f"{verdict.complaint}; {reason}")
    differs = verdict.max_rel_diff or not verdict.shapes_equal
    if not verdict.passed and differs and not exact:
        verdict = explained(verdict, _optimisation_effect(prepared, reference, arrivals))
    frame = verdict.first_frame
    if frame is None:
        return verdict
    on_search()
    sentence = first_difference(prepared, results, frame, arrival_of, tolerance)
    return replace(verdict, first_difference=sentence)


def _rounds(plan: Plan) -> bool:
    crossing = {channel.tensor for route in plan.routes for channel in route.channels}
    return any(plan.job.tensors[name].dtype == "float16" for name in crossing)


def _unseeded(prepared: PreparedRun) -> str:
    try:
        graph = built_model(prepared.folder, prepared.plan, "name random layers").graph
    except RankSliceError:
        return ""
    return next((layer.name for layer in graph.layers if layer.is_unseeded), "")


def _compare(
    comparison: Comparison,
    prepared: PreparedRun,
    reference: Path,
    results: Results,
    arrivals: Sequence[int],
    on_verified: Callable[[int], None] = lambda count: None,
) -> None:
    """Add the results to a comparison with the unsliced model."""
    outputs = [results.frames(number) for number in range(len(results.outputs))]
    whole = unsliced_outputs(prepared, reference, arrivals)
    for place, (number, expected) in enumerate(zip(results.numbers, whole, strict=True)):
        comparison.add(expected, [frames[place] for frames in outputs], number)
        on_verified(place + 1)


def _optimisation_effect(
    prepared: PreparedRun, reference: Path, arrivals: Sequence[int]
) -> Verification:
    plain = replace(prepared, options=replace(prepared.options, exact=True))
    comparison = Comparison([spec.name for spec in prepared.plan.job.outputs])
    versions = [unsliced_outputs(run, reference, arrivals) for run in (prepared, plain)]
    for expected, actual in zip(*versions, strict=True):
        comparison.add(expected, actual)
    return comparison.verdict(exact=False)
