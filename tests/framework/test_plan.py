import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from line_graphs import opened
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, planned, plans

from rankslice.commands.build.show import describe_plan
from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import plan_from_json, plan_to_json

PLAN = planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS)


def changed(*path_and_value):
    """Return the text of the plan with the value at a path replaced."""
    *path, last, value = path_and_value
    record = inner = json.loads(plan_to_json(PLAN))
    for step in path:
        inner = inner[step]
    inner[last] = value
    return json.dumps(record)


def mistakes(text):
    with pytest.raises(RankSliceError) as raised:
        plan_from_json(text)
    return [str(mistake) for mistake in raised.value.mistakes]


def test_engine_options_read_back():
    text = changed("ranks", 1, "options", {"delegate": "libQnnTFLiteDelegate.so"})
    options = plan_from_json(text).ranks[1].options
    assert (("delegate", "libQnnTFLiteDelegate.so"),) == options


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "nul", '{"format": "onnx"}', "[" * 100_000])
def test_a_text_that_is_no_plan_is_refused_as_such(text):
    assert "plan.json: this is not a plan" in mistakes(text)[0]


def test_a_plan_of_another_version_asks_to_be_built_again():
    expected = ["plan.json: this is a plan of version 3; expected 2; build it again"]
    assert expected == mistakes(changed("version", 3))


@pytest.mark.parametrize(
    ("path_and_value", "mistake"),
    [
        (("source", "0"), "source: found '0'; expected a whole number"),
        (("source", True), "source: found true; expected a whole number"),
        (("source", 3), "source: there is no rank 3"),
        (("minimal", 1), "minimal: found 1; expected true or false"),
        (("window", 3), "window: found 3; expected 8"),
        (("ranks", "x"), "ranks: found 'x'; expected a list"),
        (("ranks", 0, "rank", 1), "ranks[0].rank: found 1"),
        (("ranks", 0, "options", {"a": 1}), "ranks[0].options.a: found 1; expected a text"),
        (("ranks", 1, "key", "edge01_arm123"), "ranks: two ranks have the same key"),
        (("tensors", 1, "shape", None), "tensors[1]: it has no type and shape of a fixed size"),
        (("tensors", 1, "shape", [-1, -4]), "tensors[1]: it has no type and shape of a fixed size"),
        (("segments", 0, "inputs", ["z"]), "segments[0].inputs: there is no tensor 'z'"),
        (("segments", 0, "index", 1), "segments[0].index: found 1"),
        (("segments", 1, "rank", 7), "segments[1].rank: there is no rank 7"),
        (
            ("segments", 0, "file", "submodels/../../etc/passwd"),
            "segments[0].file: 'submodels/../../etc/passwd' is not the name of a sub-model's file",
        ),
        (
            ("segments", 0, "inputs", ["Buff4"]),
            "segments[0].inputs: nothing before it makes 'Buff4'",
        ),
        (("segments", 1, "outputs", ["Buff1"]), "segments[1].outputs: 'Buff1' is there already"),
        (("channels", 0, "number", 5), "channels[0].number: found 5; expected 1"),
        (("channels", 0, "destination", 2), "segments[1].inputs: no channel brings 'Buff1'"),
        (("channels", 0, "source", 2), "channels[0]: it does not lead 'Buff1' away"),
        (("segments", 0, "level", 0), "segments[0].level: found 0"),
        (("sink", 1), "model.outputs: 'output' does not reach the sink"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(path_and_value, mistake):
    assert f"plan.json: {mistake}" in "\n".join(mistakes(changed(*path_and_value)))


def test_missing_and_unknown_fields_are_told_together():
    record = json.loads(plan_to_json(PLAN))
    del record["sink"]
    record["sinks"] = record["segments"][0].pop("level")
    found = mistakes(json.dumps(record))
    assert "plan.json: there is no field 'sinks'" in found[0]
    assert "plan.json: the field 'sink' is missing" in found
    assert "plan.json: segments[0]: the field 'level' is missing" in found


@given(plans(), st.randoms(use_true_random=False), st.sampled_from([None, -1, "x", [], {}, 2**70]))
@settings(max_examples=100)
def test_a_plan_with_a_value_of_another_kind_is_refused_or_sound_but_never_crashes(
    plan, random, value
):
    inner = record = json.loads(plan_to_json(plan))
    while True:
        step = random.choice([*inner] if isinstance(inner, dict) else range(len(inner)))
        if not isinstance(inner[step], (dict, list)) or not inner[step]:
            break
        inner = inner[step]
    inner[step] = value
    with suppress(RankSliceError):
        plan_from_json(json.dumps(record))


def test_a_plan_is_described_in_a_line_per_rank():
    assert (
        "model.onnx: ranks: 3; segments: 5 (the fewest possible); channels: 5; window: 8\n"
        "frames enter at rank 0, results come out at rank 2\n"
        "rank  key            segments  layers  receives         sends\n"
        "0     edge01_arm123  2         2       2 tensors, 32 B  3 tensors, 48 B\n"
        "1     edge01_gpu     1         1       1 tensor, 16 B   1 tensor, 16 B\n"
        "2     edge04_arm45   2         2       2 tensors, 32 B  1 tensor, 16 B\n"
    ) == describe_plan(PLAN)


def test_what_a_plan_sends_of_open_sizes_is_the_most():
    plan = planned(opened(FIGURE_2, "Buff2"), FIGURE_2_RANKS, FIGURE_2_PLACEMENTS)
    rows = [line.split() for line in describe_plan(plan).splitlines()[3:]]
    assert ["2 tensors, <=32 B", "1 tensor, <=16 B"] == [
        " ".join(rows[0][4:8]),
        " ".join(rows[1][8:]),
    ]
