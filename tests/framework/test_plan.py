import json
from contextlib import suppress
from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from line_graphs import line_graph, opened
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, planned, plans, routed

from rankslice.commands.build.show import describe_plan
from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import plan_from_json, plan_to_json

PLAN = planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS)


SKIP = line_graph("a: x -> s t\nb: s -> u\nc: t u -> y", outputs="y")
IN_TURN = planned(SKIP, {"a": 0, "b": 1, "c": 2}, weights={1: (2, 1)})
"""Ranks 1 and 2 take turns in layer b, between ranks 0 and 3."""


def changed(*path_and_value, plan=PLAN):
    """Return the text of a plan with the value at a path replaced."""
    *path, last, value = path_and_value
    record = inner = json.loads(plan_to_json(plan))
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


@pytest.mark.parametrize("version", [3, 5])
def test_a_plan_of_another_version_asks_to_be_built_again(version):
    found = f"plan.json: this is a plan of version {version}, not 4"
    expected = [f"{found}; made by another version of RankSlice: build it again"]
    assert expected == mistakes(changed("version", version))


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
        (("channels", 0, "destination", 2), "segments[1].inputs: no channel carries 'Buff1'"),
        (("channels", 0, "source", 2), "channels[0]: it does not lead 'Buff1' away"),
        (("segments", 0, "level", 0), "segments[0].level: found 0"),
        (("sink", 1), "model.outputs: 'output' does not reach the sink"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(path_and_value, mistake):
    assert f"plan.json: {mistake}" in "\n".join(mistakes(changed(*path_and_value)))


def turns(period, *positions):
    return {"period": period, "positions": list(positions)}


def test_a_plan_with_turns_reads_back_as_it_was():
    assert IN_TURN == plan_from_json(plan_to_json(IN_TURN))
    assert ["all", "0, 2 of 3", "1 of 3", "all"] == [str(rank.turns) for rank in IN_TURN.ranks]


PERIOD, POSITIONS = "ranks[1].turns.period", "ranks[1].turns.positions"
NUMBERS = "expected numbers from 0 to 2, ascending"


@pytest.mark.parametrize(
    ("path_and_value", "mistake"),
    [
        (("turns", turns(0, 0)), f"{PERIOD}: found 0; expected 1 to 100"),
        (("turns", turns(-3, 0, 2)), f"{PERIOD}: found -3; expected 1 to 100"),
        (("turns", turns(101, 0, 2)), f"{PERIOD}: found 101; expected 1 to 100"),
        (("turns", turns(2**70, 0, 2)), f"{PERIOD}: found {2**70}; expected 1 to 100"),
        (("turns", turns(3)), f"{POSITIONS}: found []; {NUMBERS}"),
        (("turns", turns(3, 2, 0)), f"{POSITIONS}: found [2, 0]; {NUMBERS}"),
        (("turns", turns(3, 0, 0, 2)), f"{POSITIONS}: found [0, 0, 2]; {NUMBERS}"),
        (("turns", turns(3, 0, 3)), f"{POSITIONS}: found [0, 3]; {NUMBERS}"),
        (("turns", turns(3, -1, 0)), f"{POSITIONS}: found [-1, 0]; {NUMBERS}"),
        (("turns", None), "ranks[1].turns: found nothing; expected an object"),
        (("turns", [3, [0, 2]]), "ranks[1].turns: found a list; expected an object"),
        (("turns", "period", "3"), f"{PERIOD}: found '3'; expected a whole number"),
        (("turns", "positions", ["0"]), f"{POSITIONS}[0]: found '0'; expected a whole number"),
    ],
)
def test_turns_that_are_none_are_told_with_their_place(path_and_value, mistake):
    text = changed("ranks", 1, *path_and_value, plan=IN_TURN)
    assert [f"plan.json: {mistake}"] == mistakes(text)


@pytest.mark.parametrize("levels", [0, -1, 5, 2**70])
def test_a_segment_has_at_least_one_level_and_none_before_the_source(levels):
    # It is at level 4: one of the first segment, a hop, and two of its own.
    text = changed("segments", 1, "levels", levels, plan=IN_TURN)
    assert [f"plan.json: segments[1].levels: found {levels}"] == mistakes(text)


def test_a_frame_that_no_rank_has_is_told_at_who_needs_it():
    text = changed("ranks", 1, "turns", turns(3, 0), plan=IN_TURN)
    assert ["plan.json: segments[3].inputs: no channel carries 'u'"] == mistakes(text)


def test_a_frame_that_two_ranks_have_is_told_at_the_second():
    text = changed("ranks", 2, "turns", turns(3, 1, 2), plan=IN_TURN)
    assert ["plan.json: segments[2].outputs: 'u' is there already"] == mistakes(text)


def test_frames_that_both_lack_and_share_are_told_though_their_number_is_right():
    text = changed("ranks", 1, "turns", turns(3, 0, 1), plan=IN_TURN)
    assert "plan.json: segments[2].outputs: 'u' is there already" in mistakes(text)


def test_results_of_some_frames_that_do_not_reach_the_sink_are_told():
    plan = planned(line_graph("a: x -> y", outputs="y"), {"a": 0}, weights={0: (1, 1)})
    text = changed("ranks", 1, "turns", turns(4, 1), plan=plan)
    assert ["plan.json: model.outputs: 'y' does not reach the sink"] == mistakes(text)


def without_channels(plan, *numbers):
    """Return the text of a plan without some channels, the others numbered anew."""
    record = json.loads(plan_to_json(plan))
    left = [each for each in record["channels"] if each["number"] not in numbers]
    record["channels"] = [{**each, "number": n} for n, each in enumerate(left, 1)]
    return json.dumps(record)


def test_each_rank_that_takes_turns_needs_a_channel_of_its_own():
    to_first, from_second = 1, 5
    assert [("s", 0, 1), ("u", 2, 3)] == [
        (each.tensor, each.source, each.destination)
        for each in IN_TURN.channels
        if each.number in (to_first, from_second)
    ]
    found = mistakes(without_channels(IN_TURN, to_first, from_second))
    assert [
        "plan.json: segments[1].inputs: no channel carries 's'",
        "plan.json: segments[3].inputs: no channel carries 'u'",
    ] == found


def test_a_channel_between_ranks_without_a_common_frame_is_refused():
    chain = line_graph("a: x -> s\nb: s -> y", outputs="y")
    plan = planned(chain, {"a": 0, "b": 1}, weights={0: (1, 1), 1: (1, 1)})
    record = json.loads(plan_to_json(plan))
    first, other = record["channels"][0], len(record["channels"])
    assert ("x", 1) == (first["tensor"], first["destination"])
    wrong = {"number": other + 1, "tensor": "s", "source": 0, "destination": 3}
    record["channels"].append(wrong)
    expected = f"plan.json: channels[{other}]: its ranks have no frame in common"
    assert [expected] == mistakes(json.dumps(record))


def test_a_tensor_comes_once_from_each_rank_that_makes_it():
    record = json.loads(plan_to_json(IN_TURN))
    last = record["channels"][-1]
    record["channels"].append({**last, "number": last["number"] + 1})
    assert [
        "plan.json: channels: two of them carry the same tensor between the same ranks"
    ] == mistakes(json.dumps(record))


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


def test_a_plan_with_turns_is_described_with_the_frames_of_each_rank():
    assert (
        "model.onnx: ranks: 4; segments: 4 (the fewest possible); channels: 5; window: 8\n"
        "frames enter at rank 0, results come out at rank 3\n"
        "rank  key         frames     segments  layers  receives         sends\n"
        "0     board_cpu0  all        1         1       -                3 tensors, 48 B\n"
        "1     board_cpu1  0, 2 of 3  1         1       1 tensor, 16 B   1 tensor, 16 B\n"
        "2     board_cpu2  1 of 3     1         1       1 tensor, 16 B   1 tensor, 16 B\n"
        "3     board_cpu3  all        1         1       3 tensors, 48 B  -\n"
    ) == describe_plan(IN_TURN)


def test_what_a_plan_sends_of_open_sizes_is_the_most():
    plan = planned(opened(FIGURE_2, "Buff2"), FIGURE_2_RANKS, FIGURE_2_PLACEMENTS)
    rows = [line.split() for line in describe_plan(plan).splitlines()[3:]]
    assert ["2 tensors, <=32 B", "1 tensor, <=16 B"] == [
        " ".join(rows[0][4:8]),
        " ".join(rows[1][8:]),
    ]


CHAIN = line_graph("conv: x -> a\nrelu: a -> y", outputs="y")
ROUTED = routed(CHAIN, {"conv": 0, "relu": 0}, {"conv": 0, "relu": 1}, surge_weights={1: (2, 1)})


def changed_surge(*path_and_value):
    """Return the text of a plan with two routes, with the value at a path of the surge replaced."""
    return changed("surge", *path_and_value, plan=ROUTED)


def test_a_plan_with_two_routes_reads_back():
    assert ROUTED == plan_from_json(plan_to_json(ROUTED))


def test_a_route_has_turns_segments_and_channels_of_its_own():
    usual, surge = ROUTED.routes
    assert [(1, (0,))] * 3 == [astuple(rank.turns) for rank in usual.ranks]
    assert [(1, (0,)), (3, (0, 2)), (3, (1,))] == [astuple(rank.turns) for rank in surge.ranks]
    assert [(0, 0)] == [(each.rank, each.index) for each in usual.segments]
    assert [(0, 1), (1, 0), (2, 0)] == [(each.rank, each.index) for each in surge.segments]
    assert () == usual.channels
    assert [1, 2, 3, 4] == [each.number for each in surge.channels]
    # Conv and Relu in one step; in two with a hop each way, the second of two steps.
    assert [2, 7] == [route.window for route in ROUTED.routes]
    assert [None, None] == [route.surge for route in ROUTED.routes]


@pytest.mark.parametrize(
    ("path_and_value", "mistake"),
    [
        (("turns", []), "surge.turns: found 0; expected 3, one for each rank"),
        (
            ("turns", 1, "period", 0),
            "surge.turns[1].period: found 0; expected 1 to",
        ),
        (
            ("turns", 2, "positions", [4]),
            "surge.turns[2].positions: found [4]; expected numbers from 0 to 2, ascending",
        ),
        (("channels", 0, "number", 9), "surge: channels[0].number: found 9; expected 1"),
        (("channels", 1, "source", 7), "surge: channels[1].source: there is no rank 7"),
        (("channels", 0, "destination", 2), "surge: channels: two of them carry the same tensor"),
        (("segments", 0, "index", 0), "surge: segments[0].index: found 0"),
        (("segments", 1, "inputs", ["b"]), "surge: segments[1].inputs: there is no tensor 'b'"),
        (("segments", 1, "inputs", ["y"]), "surge: segments[1].inputs: nothing before it makes"),
        (
            ("segments", 1, "file", ROUTED.segments[0].file),
            "segments: two segments have the same file",
        ),
        (("path_length", 0), "surge: path_length: found 0"),
        # The first of two that take turns has all frames: the other one's are made twice.
        (
            ("turns", 1, {"period": 1, "positions": [0]}),
            "surge: segments[2].outputs: 'y' is there already",
        ),
        # The first of two has a part of its frames: the others do not reach the sink.
        (("turns", 1, "positions", [0]), "surge: model.outputs: 'y' does not reach the sink"),
    ],
)
def test_what_is_wrong_with_the_route_for_a_surge_is_told_with_its_place(path_and_value, mistake):
    assert f"plan.json: {mistake}" in "\n".join(mistakes(changed_surge(*path_and_value)))


def test_a_plan_with_two_routes_is_described_route_by_route():
    assert (
        "model.onnx: ranks: 3; segments: 1 (the fewest possible); channels: 0; window: 2\n"
        "frames enter at rank 0, results come out at rank 0\n"
        "rank  key         segments  layers  receives  sends\n"
        "0     board_cpu0  1         2       -         -\n"
        "for a surge: segments: 3 (the fewest possible); channels: 4; window: 7\n"
        "rank  key         frames     segments  layers  receives         sends\n"
        "0     board_cpu0  all        1         1       2 tensors, 32 B  2 tensors, 32 B\n"
        "1     board_cpu1  0, 2 of 3  1         1       1 tensor, 16 B   1 tensor, 16 B\n"
        "2     board_cpu2  1 of 3     1         1       1 tensor, 16 B   1 tensor, 16 B\n"
    ) == describe_plan(ROUTED)
