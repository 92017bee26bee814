from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from line_graphs import line_graph, opened
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, planned, plans, routed

from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import Plan, plan_from_json, plan_to_json
from rankslice.views.plan_text import plan_parts

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
    text = changed("job", "ranks", 1, "options", {"delegate": "libQnnTFLiteDelegate.so"})
    options = plan_from_json(text).ranks[1].options
    assert (("delegate", "libQnnTFLiteDelegate.so"),) == options


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "nul", '{"format": "onnx"}', "[" * 100_000])
def test_a_text_that_is_no_plan_is_refused_as_such(text):
    assert "plan.json: this is not a plan" in mistakes(text)[0]


@pytest.mark.parametrize("version", [6, 8])
def test_a_plan_of_another_version_asks_to_be_built_again(version):
    found = f"plan.json: this is a plan of version {version}, not 7"
    expected = [f"{found}; made by another version of RankSlice: build it again"]
    assert expected == mistakes(changed("version", version))


@pytest.mark.parametrize(
    ("path_and_value", "mistake"),
    [
        (("source", "0"), "source: found '0'; expected a whole number"),
        (("source", True), "source: found true; expected a whole number"),
        (("source", 3), "source: there is no rank 3; expected 0 to 2"),
        (("window", 0), "window: found 0; expected a number from 1 to 65536"),
        (("window", 2**70), f"window: found {2**70}; expected a number from 1 to 65536"),
        (("ranks", "x"), "ranks: found 'x'; expected a list"),
        (("ranks", []), "ranks: there are none; expected one at least"),
        (("ranks", 0, "rank", 1), "ranks[0].rank: found 1; expected 0"),
        (("ranks", 0, "options", {"a": 1}), "ranks[0].options.a: found 1; expected a text"),
        (("ranks", 0, "cores", []), "ranks[0].cores: found []; expected numbers of cores"),
        (("ranks", 0, "cores", [1, 1]), "ranks[0].cores: found [1, 1]; expected numbers of cores"),
        (("ranks", 1, "key", "edge01_arm123"), "ranks: two ranks have the same key"),
        (("ranks", 1, "surge", {}), "ranks[1].surge: the field 'turns' is missing"),
        (("surge_window", 3), "ranks[0].surge: it is missing; expected both or neither"),
        (("between", 1, "shape", [-1, -4]), "between[1]: it has no type and shape"),
        (("between", 1, "dtype", "string"), "between[1]: it has no type and shape"),
        (("between", 1, "name", "Buff1"), "tensors: two tensors have the same name"),
        (("between", 1, "name", "input"), "between: 'input' is an input or output, too"),
        (
            ("ranks", 0, "runs", 0, "inputs", ["z"]),
            "ranks[0].runs[0].inputs: there is no tensor 'z'",
        ),
        (
            ("ranks", 0, "sends", 0, "to", 7),
            "ranks[0].sends[0].to: there is no rank 7",
        ),
        (
            ("ranks", 0, "runs", 0, "file", "submodels/../../etc/passwd"),
            "ranks[0].runs[0].file: 'submodels/../../etc/passwd' is not the name of a sub-model's",
        ),
        (
            ("ranks", 1, "runs", 0, "file", "submodels/edge01_arm123.0.onnx"),
            "ranks[1].runs[0].file: two segments have the same file",
        ),
        (
            ("ranks", 1, "runs", 0, "inputs", ["Buff3"]),
            "ranks[1].runs[0].inputs: rank 1 does not get 'Buff3' in each of its frames; rank 2",
        ),
        (
            ("ranks", 1, "runs", 0, "outputs", ["Buff1"]),
            "ranks[1].runs[0].outputs: rank 0 makes 'Buff1' already; expected one rank to make it",
        ),
        (
            ("ranks", 1, "runs", 0, "outputs", []),
            "ranks[0].runs[1].inputs: nobody makes 'Buff2'",
        ),
        (
            ("ranks", 0, "sends", []),
            "ranks[1].receives[0]: rank 1 receives 'Buff1' from 0; rank 0 sends it to nobody",
        ),
        (
            ("ranks", 1, "receives", 0, "source", 2),
            "ranks[1].receives[0]: rank 1 receives 'Buff1' from 2; rank 2 sends it to nobody",
        ),
        (
            ("ranks", 1, "receives", []),
            "ranks[0].sends[0]: rank 0 sends 'Buff1' to 1; rank 1 receives it from nobody",
        ),
        (
            ("ranks", 1, "sends", 0, "tensor", "Buff4"),
            "ranks[1].sends[0]: rank 1 does not make 'Buff4', or sends it to itself",
        ),
        (
            ("ranks", 0, "runs", 1, "inputs", ["Buff3"]),
            "ranks[0].receives[0]: rank 0 receives 'Buff2' from 1; it needs that for none",
        ),
        (("ranks", 0, "runs", 0, "inputs", ["Buff4"]), "ranks: segments wait for each other"),
        (("sink", 1), "outputs[0]: 'output' does not reach the sink, rank 1"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(path_and_value, mistake):
    assert f"plan.json: job.{mistake}" in "\n".join(mistakes(changed("job", *path_and_value)))


def turns(period, *positions):
    return {"period": period, "positions": list(positions)}


def test_a_plan_with_turns_reads_back_as_it_was():
    assert IN_TURN == plan_from_json(plan_to_json(IN_TURN))
    assert ["all", "0, 2 of 3", "1 of 3", "all"] == [str(rank.turns) for rank in IN_TURN.ranks]


PERIOD, POSITIONS = "job.ranks[1].turns.period", "job.ranks[1].turns.positions"
NUMBERS = "expected 0 to 2, ascending"


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
        (("turns", None), "job.ranks[1].turns: found nothing; expected an object"),
        (("turns", [3, [0, 2]]), "job.ranks[1].turns: found a list; expected an object"),
        (("turns", "period", "3"), f"{PERIOD}: found '3'; expected a whole number"),
        (("turns", "positions", ["0"]), f"{POSITIONS}[0]: found '0'; expected a whole number"),
    ],
)
def test_turns_that_are_none_are_told_with_their_place(path_and_value, mistake):
    text = changed("job", "ranks", 1, *path_and_value, plan=IN_TURN)
    assert [f"plan.json: {mistake}"] == mistakes(text)


def test_a_frame_that_no_rank_has_is_told_at_who_needs_it():
    text = changed("job", "ranks", 1, "turns", turns(3, 0), plan=IN_TURN)
    found = "rank 3 does not get 'u' in each of its frames; rank 1 and rank 2 can send it"
    assert [f"plan.json: job.ranks[3].runs[0].inputs: {found}"] == mistakes(text)


def test_a_frame_that_two_ranks_have_is_told_at_the_second():
    text = changed("job", "ranks", 2, "turns", turns(3, 1, 2), plan=IN_TURN)
    found = "rank 1 makes 'u' already; expected one rank to make it in a frame"
    assert [f"plan.json: job.ranks[2].runs[0].outputs: {found}"] == mistakes(text)


def test_frames_that_both_lack_and_share_are_told_though_their_number_is_right():
    text = changed("job", "ranks", 1, "turns", turns(3, 0, 1), plan=IN_TURN)
    assert "ranks[2].runs[0].outputs: rank 1 makes 'u' already" in "".join(mistakes(text))


def test_results_of_some_frames_that_do_not_reach_the_sink_are_told():
    plan = planned(line_graph("a: x -> y", outputs="y"), {"a": 0}, weights={0: (1, 1)})
    text = changed("job", "ranks", 1, "turns", turns(4, 1), plan=plan)
    expected = "plan.json: job.outputs[0]: 'y' does not reach the sink, rank 0"
    assert [expected] == mistakes(text)


def test_a_channel_between_ranks_without_a_common_frame_is_refused():
    chain = line_graph("a: x -> s\nb: s -> y", outputs="y")
    plan = planned(chain, {"a": 0, "b": 1}, weights={0: (1, 1), 1: (1, 1)})
    record = json.loads(plan_to_json(plan))
    ranks = record["job"]["ranks"]
    ranks[0]["sends"].append({"tensor": "s", "to": 3, "compress": "none"})
    ranks[3]["receives"].append({"tensor": "s", "source": 0})
    place = f"job.ranks[0].sends[{len(ranks[0]['sends']) - 1}]"
    expected = f"plan.json: {place}: ranks 0 and 3 have no frame in common"
    assert [expected] == mistakes(json.dumps(record))


def test_a_tensor_comes_once_from_each_rank_that_makes_it():
    record = json.loads(plan_to_json(PLAN))
    for rank, table in ((0, "sends"), (1, "receives")):
        rows = record["job"]["ranks"][rank][table]
        rows.append(rows[0])
    found = mistakes(json.dumps(record))
    assert "plan.json: job.ranks[0].sends[0]: rank 0 sends 'Buff1' to 1 twice" in found
    assert "plan.json: job.ranks[1].receives[1]: rank 1 receives 'Buff1' from 0 twice" in found


def test_missing_and_unknown_fields_are_told_together():
    record = json.loads(plan_to_json(PLAN))
    del record["job"]["sink"]
    record["sinks"] = record["job"]["ranks"][0].pop("key")
    found = mistakes(json.dumps(record))
    assert "plan.json: there is no field 'sinks'" in found[0]
    assert "plan.json: job: the field 'sink' is missing" in found
    assert "plan.json: job.ranks[0]: the field 'key' is missing" in found


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


def described(plan: Plan) -> list[Any]:
    """Return the lines that describe a plan, and its tables as lists of rows."""
    parts = plan_parts(plan)
    return [part if isinstance(part, str) else [part.head, *part.rows] for part in parts]


def test_a_plan_is_described_in_a_line_per_rank():
    assert [
        "model.onnx: ranks: 3; segments: 5 (the fewest possible); channels: 5; window: 8",
        "frames enter at rank 0, results come out at rank 2",
        [
            ("rank", "key", "segments", "layers", "receives", "sends"),
            ("0", "edge01_arm123", "2", "2", "2 tensors, 32 B", "3 tensors, 48 B"),
            ("1", "edge01_gpu", "1", "1", "1 tensor, 16 B", "1 tensor, 16 B"),
            ("2", "edge04_arm45", "2", "2", "2 tensors, 32 B", "1 tensor, 16 B"),
        ],
    ] == described(PLAN)


def test_a_plan_with_turns_is_described_with_the_frames_of_each_rank():
    assert [
        "model.onnx: ranks: 4; segments: 4 (the fewest possible); channels: 5; window: 8",
        "frames enter at rank 0, results come out at rank 3",
        [
            ("rank", "key", "frames", "segments", "layers", "receives", "sends"),
            ("0", "board_cpu0", "all", "1", "1", "-", "3 tensors, 48 B"),
            ("1", "board_cpu1", "0, 2 of 3", "1", "1", "1 tensor, 16 B", "1 tensor, 16 B"),
            ("2", "board_cpu2", "1 of 3", "1", "1", "1 tensor, 16 B", "1 tensor, 16 B"),
            ("3", "board_cpu3", "all", "1", "1", "3 tensors, 48 B", "-"),
        ],
    ] == described(IN_TURN)


def test_what_a_plan_sends_of_open_sizes_is_the_most():
    plan = planned(opened(FIGURE_2, "Buff2"), FIGURE_2_RANKS, FIGURE_2_PLACEMENTS)
    _, _, (_, first, second, _) = described(plan)
    assert ["2 tensors, <=32 B", "1 tensor, <=16 B"] == [first[4], second[5]]


CHAIN = line_graph("conv: x -> a\nrelu: a -> y", outputs="y")
ROUTED = routed(CHAIN, {"conv": 0, "relu": 0}, {"conv": 0, "relu": 1}, surge_weights={1: (2, 1)})


def test_a_plan_with_two_routes_reads_back():
    assert ROUTED == plan_from_json(plan_to_json(ROUTED))


def test_a_route_has_turns_segments_and_channels_of_its_own():
    usual, surge = ROUTED.routes
    assert [(1, (0,))] * 3 == [astuple(rank.turns) for rank in usual.ranks]
    assert [(1, (0,)), (3, (0, 2)), (3, (1,))] == [astuple(rank.turns) for rank in surge.ranks]
    assert [(0, 0)] == [(segment.rank, segment.index) for segment in usual.segments]
    assert [(0, 1), (1, 0), (2, 0)] == [(segment.rank, segment.index) for segment in surge.segments]
    assert () == usual.channels
    assert [1, 2, 3, 4] == [channel.number for channel in surge.channels]
    # Conv and Relu in one step; in two with a hop each way, the second of two steps.
    assert [2, 7] == [route.job.window for route in ROUTED.routes]
    assert [None, None] == [route.surge for route in ROUTED.routes]


@pytest.mark.parametrize(
    ("rank", "path_and_value", "mistake"),
    [
        (1, ("turns", "period", 0), "ranks[1].surge.turns.period: found 0; expected 1 to"),
        (2, ("turns", "positions", [4]), "ranks[2].surge.turns.positions: found [4]; expected 0"),
        (1, ("receives", 0, "source", 7), "ranks[1].surge.receives[0].source: there is no rank 7"),
        (0, ("sends", 0, "to", 2), "ranks[0].surge.sends[0]: rank 0 sends 'a' to 2 twice"),
        (1, ("runs", 0, "inputs", ["b"]), "ranks[1].surge.runs[0].inputs: there is no tensor 'b'"),
        (
            1,
            ("runs", 0, "file", ROUTED.segments[0].file),
            "ranks[1].surge.runs[0].file: two segments have the same file",
        ),
        # The first of two that take turns has all frames: the other one's are made twice.
        (1, ("turns", turns(1, 0)), "ranks[2].surge.runs[0].outputs: rank 1 makes 'y' already"),
        # The first of two has a part of its frames: the others do not reach the sink.
        (1, ("turns", "positions", [0]), "outputs[0]: 'y' does not reach the sink, rank 0"),
    ],
)
def test_what_is_wrong_with_the_route_for_a_surge_is_told_with_its_place(
    rank, path_and_value, mistake
):
    text = changed("job", "ranks", rank, "surge", *path_and_value, plan=ROUTED)
    assert f"plan.json: job.{mistake}" in "\n".join(mistakes(text))


def test_a_plan_with_two_routes_is_described_route_by_route():
    assert [
        "model.onnx: ranks: 3; segments: 1 (the fewest possible); channels: 0; window: 2",
        "frames enter at rank 0, results come out at rank 0",
        [
            ("rank", "key", "segments", "layers", "receives", "sends"),
            ("0", "board_cpu0", "1", "2", "-", "-"),
        ],
        "for a surge: segments: 3 (the fewest possible); channels: 4; window: 7",
        [
            ("rank", "key", "frames", "segments", "layers", "receives", "sends"),
            ("0", "board_cpu0", "all", "1", "1", "2 tensors, 32 B", "2 tensors, 32 B"),
            ("1", "board_cpu1", "0, 2 of 3", "1", "1", "1 tensor, 16 B", "1 tensor, 16 B"),
            ("2", "board_cpu2", "1 of 3", "1", "1", "1 tensor, 16 B", "1 tensor, 16 B"),
        ],
    ] == described(ROUTED)
