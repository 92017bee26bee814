import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from command_line import rankslice, succeed
from line_graphs import opened
from needed import NEEDS_FIRST_CORES
from placements import placements
from plans import planned
from problems import CHAIN, board
from profiled_layers import kind_of, profile_of
from real_jobs import chain_folder, let_ranks_sleep
from traces import slices_on

from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.simulate.show import simulated_page
from rankslice.exploration.times.segment_times import KnownTimes
from rankslice.framework.errors import RankSliceError
from rankslice.framework.platform import Link, Platform
from rankslice.framework.profile import Profile, ProfiledModel, SeenTensor
from rankslice.session.arriving_frames import arrivals_in
from rankslice.session.exploring.simulate import simulate_job


@pytest.fixture
def sleeping(tmp_path):
    """A build folder of three ranks that sleep for 20 ms."""
    return let_ranks_sleep(chain_folder(tmp_path, 3), 20)


def simulated(*arguments):
    ended = succeed("simulate", *arguments, "--json", "-")
    return json.loads(ended.out)


def profiled(folder, *keys):
    file = folder / "profile.json"
    kind = kind_of(3, (10.0, 10.0, 30.0), *keys or ("local_cpu0",))
    file.write_text(profile_of(folder / "model.onnx", 3, kind))
    return file


def test_a_build_folder_of_sleeping_ranks_needs_no_profile(sleeping):
    simulation = simulated(sleeping, "--frames", "300")
    assert simulation["throughput_fps"] == pytest.approx(50, rel=0.05)
    assert [20.0] * 3 == [segment["compute_ms"] for segment in simulation["segments"]]
    assert 3 == len(simulation["ranks"])


@pytest.fixture
def routed(tmp_path):
    """A build folder of a job that needs 20 ms on the normal route, 60 on the other one."""
    return let_ranks_sleep(chain_folder(tmp_path, 3, usually_whole=True), 20)


def test_either_route_of_a_job_can_be_simulated(routed):
    normal, surge = (
        simulated(routed, "--switch", name, "--fps", "5") for name in ("normal", "surge")
    )
    # One run of a sub-model a frame, or three.
    assert 20 <= normal["latency_ms"]["p50"] < 25
    assert 60 <= surge["latency_ms"]["p50"] < 65
    assert [[], [("surge", 0)]] == [
        [(each["route"], each["frame"]) for each in found["switches"]] for found in (normal, surge)
    ]
    # A segment of the normal route and three of the other one.
    assert [(0, 0), (0, 1), (1, 0), (2, 0)] == [
        (part["rank"], part["segment"]) for part in normal["segments"]
    ]


def test_a_job_with_two_routes_changes_them_by_itself(routed):
    calm = simulated(routed, "--fps", "5", "--normal-fps", "40")
    assert ([], "steady state") == (calm["switches"], calm["throughput_of"])
    ended = rankslice("simulate", routed, "--fps", "39", "--normal-fps", "40")
    assert "(both routes), window 2 (for a surge 7)" in ended.out
    assert "10 frames took the normal route, 990 the surge route" in ended.out
    assert "surge from frame 10 on, 1 waiting: 39 frames/s arrived, more than 36" in ended.out
    higher = simulated(routed, "--fps", "39", "--normal-fps", "40", "--surge-above", "0.99")
    assert [] == higher["switches"]
    pulled = simulated(routed)
    assert ["frames come as fast as they are taken"] == [c["reason"] for c in pulled["switches"]]


def test_the_queue_has_room_until_a_change_of_the_route_has_helped(routed, tmp_path):
    trace = tmp_path / "trace.txt"
    trace.write_text("0\n" * 6 + "5\n" * 30)
    options = "--switch", "normal", "--surge-queue", "9"
    assert 12 == len(simulated(routed, "--arrivals", trace, *options, "--queue", "18")["dropped"])
    assert [] == simulated(routed, "--arrivals", trace, *options)["dropped"]


def test_the_longest_series_on_a_route_is_drawn(routed, tmp_path):
    page = tmp_path / "timeline.html"
    options = "--fps", "39", "--normal-fps", "40", "--drawn", "40", "--html", page
    succeed("simulate", routed, *options)
    # The surge begins at frame 10.
    assert set(range(10, 40)) == {one.frame for one in slices_on(page) if one.name == "segment 0"}


def test_a_rate_of_arrival_is_kept(sleeping):
    simulation = simulated(sleeping, "--fps", "10", "--frames", "100")
    assert simulation["throughput_fps"] == pytest.approx(10)
    assert simulation["latency_ms"]["p50"] == pytest.approx(61, abs=3)


def test_arrivals_can_come_from_a_file(sleeping, tmp_path):
    trace = tmp_path / "trace.txt"
    trace.write_text("# seconds\n0\n0.5  # a pause\n\n1.0\n")
    simulation = simulated(sleeping, "--arrivals", trace)
    assert (3, 3) == (simulation["frames"], simulation["completed"])
    assert simulation["duration_s"] == pytest.approx(1.06, abs=0.01)


def test_of_too_few_frames_neither_rate_nor_bottleneck_is_told(sleeping):
    # While as many pass as fill the window of 6, at least 10, twice over, the rate is not steady.
    few = simulated(sleeping, "--frames", "20")
    assert (None, "too few frames") == (few["throughput_fps"], few["throughput_of"])
    assert (
        "20 frames are too few to determine a rate or a bottleneck; give more than 20"
        == (few["bottleneck"])
    )
    ended = rankslice("simulate", sleeping, "--frames", "1")
    assert "1 frame, rate unknown (too few frames), window 6" in ended.out
    enough = simulated(sleeping, "--frames", "21")
    assert enough["throughput_fps"] == pytest.approx(50, rel=0.01)


def test_what_is_not_there_is_named_before_a_mapping_is_asked_for(tmp_path):
    ended = rankslice("simulate", tmp_path / "nothere")
    assert 1 == ended.code
    assert f"{tmp_path / 'nothere'}: no such file or folder; expected a model file" in ended.err
    assert "--mapping" not in ended.err


def test_a_profile_tells_how_long_segments_take(tmp_path):
    folder = chain_folder(tmp_path, 3)
    file = profiled(tmp_path, "local_cpu0", "local_cpu1")
    simulation = simulated(folder, "--profile", file, "--frames", "500")
    assert [10.0] * 3 == [segment["compute_ms"] for segment in simulation["segments"]]
    assert ["profile.json: measured"] * 3 == [
        segment["source"] for segment in simulation["segments"]
    ]
    # Ranks 0 and 2 share a core wherever the machine has two of them.
    assert "core" in simulation["bottleneck"] or "rank" in simulation["bottleneck"]


@NEEDS_FIRST_CORES
def test_times_scatter_as_they_were_measured(tmp_path):
    folder = chain_folder(tmp_path, 1)
    file = tmp_path / "profile.json"
    file.write_text(
        profile_of(tmp_path / "model.onnx", 1, kind_of(1, (10.0, 10.0, 40.0), "local_cpu0"))
    )
    simulation = simulated(folder, "--profile", file, "--scatter", "--frames", "2000")
    assert simulation["ranks"][0]["busy_ms"] == pytest.approx(20.2, rel=0.05)


def test_a_model_and_a_mapping_can_be_simulated_without_a_build(tmp_path):
    chain_folder(tmp_path, 2)
    file = tmp_path / "profile.json"
    kind = kind_of(2, (10.0,), "local_cpu0", "local_cpu1")
    file.write_text(profile_of(tmp_path / "model.onnx", 2, kind))
    mapping = tmp_path / "mapping.json"
    simulation = simulated(tmp_path / "model.onnx", "--mapping", mapping, "--profile", file)
    assert 2 == len(simulation["segments"])


def test_a_part_of_layers_takes_its_share_of_their_time(tmp_path):
    opset = '<ir_version: 8, opset_import: ["" : 17]>'
    text = f"{opset} g (float[1, 4, 4, 4] a) => (c) {{ [L0] b = Relu (a) [L1] c = Neg (b) }}"
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    file = tmp_path / "profile.json"
    keys = "local_cpu0", "local_cpu1"
    file.write_text(profile_of(tmp_path / "model.onnx", 2, kind_of(2, (10.0,), *keys)))
    shares = zip(keys, (3, 1), strict=True)
    mapping = {key: [{"layers": ["L0..L1"], "by": "rows", "share": share}] for key, share in shares}
    (tmp_path / "mapping.json").write_text(json.dumps(mapping))
    simulation = simulated(
        tmp_path / "model.onnx", "--mapping", tmp_path / "mapping.json", "--profile", file
    )
    # Segments that only cut out what a part reads, or join the parts, take no time.
    assert [0.0, 0.0, 5.0, 15.0] == sorted(
        round(segment["compute_ms"], 6) for segment in simulation["segments"]
    )


def test_a_platform_tells_the_links(tmp_path):
    (tmp_path / "boards.yaml").write_text(
        "boards: {one: {cores: 1}, two: {cores: 1}}\n"
        "links: {default: {bandwidth_mbps: 0.001, latency_ms: 0}}\n"
    )
    chain_folder(tmp_path, 2)
    (tmp_path / "mapping.json").write_text('{"one_cpu0": ["L0"], "two_cpu0": ["L1"]}')
    file = tmp_path / "profile.json"
    kind = kind_of(2, (10.0,), "one_cpu0", "two_cpu0")
    file.write_text(profile_of(tmp_path / "model.onnx", 2, kind))
    simulation = simulated(
        tmp_path / "model.onnx", "--mapping", tmp_path / "mapping.json", "--profile", file,
        "--platform", tmp_path / "boards.yaml", "--frames", "100",
    )  # fmt: skip
    assert simulation["throughput_fps"] == pytest.approx(1000 / (16 * 4 * 8))
    assert (
        "from one is busy" in simulation["bottleneck"]
        or "on two is busy" in simulation["bottleneck"]
    )


@pytest.mark.parametrize("links", [
    "{default: {bandwidth_mbps: 0.001, latency_ms: 0}}",
    "{pairs: [{between: [two, one], bandwidth_mbps: 0.001, latency_ms: 0}]}",
])  # fmt: skip
def test_a_build_folder_has_the_links_of_its_platform(tmp_path, links):
    (tmp_path / "boards.yaml").write_text(
        f"boards: {{one: {{cores: 1}}, two: {{cores: 1}}}}\nlinks: {links}\n"
    )
    chain_folder(tmp_path, 2)
    (tmp_path / "mapping.json").write_text('{"one_cpu0": ["L0"], "two_cpu0": ["L1"]}')
    succeed(
        "build", tmp_path / "model.onnx", "--mapping", tmp_path / "mapping.json",
        "--platform", tmp_path / "boards.yaml", "--out", tmp_path / "over",
    )  # fmt: skip
    file = tmp_path / "profile.json"
    file.write_text(
        profile_of(tmp_path / "model.onnx", 2, kind_of(2, (10.0,), "one_cpu0", "two_cpu0"))
    )
    simulation = simulated(tmp_path / "over", "--profile", file, "--frames", "100")
    assert simulation["throughput_fps"] == pytest.approx(1000 / (16 * 4 * 8))
    # A platform that is given goes before that of the folder.
    (tmp_path / "boards.yaml").write_text("boards: {one: {cores: 1}, two: {cores: 1}}\n")
    given = ("--platform", tmp_path / "boards.yaml")
    simulation = simulated(tmp_path / "over", "--profile", file, "--frames", "100", *given)
    assert simulation["throughput_fps"] > 50


def test_reading_frames_takes_as_long_as_is_said(sleeping):
    alone = [
        simulated(sleeping, "--fps", "5", "--frames", "30", *more)["latency_ms"]["p50"]
        for more in ((), ("--read-ms", "0"), ("--read-ms", "7"))
    ]
    assert 7 == pytest.approx(alone[2] - alone[1])
    assert 0.05 < alone[0] - alone[1] < 0.1


@pytest.fixture
def in_turn(tmp_path):
    """Arguments that simulate a model on a board, and in turn on one of half the speed."""
    (tmp_path / "boards.yaml").write_text("boards: {fast: {cores: 1}, slow: {cores: 1}}\n")
    chain_folder(tmp_path, 2)
    (tmp_path / "mapping.json").write_text('{"fast_cpu0*2|slow_cpu0": ["L0..L1"]}')
    kinds = kind_of(2, (10.0,), "fast_cpu0"), kind_of(2, (20.0,), "slow_cpu0")
    (tmp_path / "profile.json").write_text(profile_of(tmp_path / "model.onnx", 2, *kinds))
    return (
        tmp_path / "model.onnx", "--mapping", tmp_path / "mapping.json",
        "--profile", tmp_path / "profile.json", "--platform", tmp_path / "boards.yaml",
    )  # fmt: skip


def test_each_rank_in_turn_takes_the_time_of_its_own_accelerator(in_turn):
    simulation = simulated(*in_turn)
    assert [20.0, 40.0] == [segment["compute_ms"] for segment in simulation["segments"]]
    assert ["profile.json: measured"] * 2 == [
        segment["source"] for segment in simulation["segments"]
    ]
    assert simulation["throughput_fps"] == pytest.approx(1 / 0.02 + 1 / 0.04, rel=0.03)


def test_an_accelerator_in_turn_that_was_not_profiled_is_named(in_turn, tmp_path):
    file = tmp_path / "profile.json"
    file.write_text(profile_of(tmp_path / "model.onnx", 2, kind_of(2, (10.0,), "fast_cpu0")))
    assert "the accelerator 'slow_cpu0' was not measured" in mistakes(*in_turn)


def test_ranks_in_turn_are_told_with_their_frames(in_turn):
    lines = rankslice("simulate", *in_turn).out.splitlines()
    assert ["0, 2 of 3", "1 of 3"] == [
        line.split("│")[3].strip() for line in lines if "_cpu0" in line and "│" in line
    ]


def test_frames_are_drawn_on_the_tracks_of_the_ranks_that_handle_them(in_turn, tmp_path):
    drawn = drawn_by(tmp_path, *in_turn, "--drawn", "6")
    assert {(0, 0), (0, 2), (0, 3), (0, 5), (1, 1), (1, 4)} == {
        (one.rank, one.frame) for one in drawn if one.name == "segment 0" and one.rank < 2
    }


def open_job(*seen, traced=0):
    """Return what two sleeping ranks show whose cable takes 1 ms for a byte of ``t``."""
    places = [
        replace(placement, engine="null", options=(("sleep_ms", "1"),))
        for placement in placements("one_cpu0", "two_cpu0")
    ]
    plan = planned(opened(CHAIN, "t"), {"a": 0, "b": 1, "c": 1}, tuple(places))
    boards = Platform("boards.yaml", (board("one"), board("two")), Link(8e-3, 0.0))
    profile = Profile(ProfiledModel("model.onnx", "", (), ()), (), seen)
    return simulate_job(
        plan,
        boards,
        KnownTimes(profile),
        "p.json",
        RunOptions(frames=400),
        traced=traced,
    )


def test_messages_are_as_large_as_the_profile_has_seen_them_or_else_as_their_bounds():
    seen = SeenTensor("t", "float32", ((1, 0), (1, 0), (1, 0), (1, 4)))
    bound, drawn = open_job(), open_job(seen)
    assert bound.simulation.throughput_fps == pytest.approx(1000 / (64 + 16))
    assert drawn.simulation.throughput_fps == pytest.approx(1000 / (64 + 4), rel=0.01)
    assert drawn.simulation.to_json() == open_job(seen).simulation.to_json()
    assert [1, 0] == [sum("changes" in note for note in job.notes) for job in (bound, drawn)]


def test_what_is_found_is_printed_for_people(sleeping):
    ended = succeed("simulate", sleeping, "--frames", "100", "--fps", "80", "--queue", "1")
    assert "frames/s" in ended.out
    assert "find no room" in ended.out
    assert "bottleneck: " in ended.out


def test_a_page_of_too_few_frames_tells_no_bottleneck(sleeping, tmp_path):
    page = tmp_path / "timeline.html"
    succeed("simulate", sleeping, "--frames", "5", "--html", page)
    assert "too few to determine a rate or a bottleneck" in page.read_text()


def test_the_first_frames_can_be_drawn(sleeping, tmp_path):
    drawn = drawn_by(tmp_path, sleeping, "--drawn", "4")
    assert 3 * 4 == sum(one.name.startswith("segment") for one in drawn)
    assert {"work", "wait"} == {one.kind for one in drawn}


def test_messages_between_boards_are_drawn(tmp_path):
    job = open_job(traced=6)
    page = tmp_path / "timeline.html"
    page.write_text(simulated_page(job))
    assert {"'t' to rank 1", "'t' from rank 0"} == {
        one.name for one in slices_on(page) if one.kind == "message"
    }


def test_drawing_and_record_cannot_both_go_to_stdout(sleeping):
    assert 1 == rankslice("simulate", sleeping, "--html", "-", "--json", "-").code


def drawn_by(folder, *arguments):
    """Return the slices on the page that a simulation writes."""
    page = folder / "timeline.html"
    succeed("simulate", *arguments, "--html", page)
    return slices_on(page)


def mistakes(*arguments):
    ended = rankslice("simulate", *arguments)
    assert 1 == ended.code
    return ended.err


def test_a_profile_of_another_model_is_refused(tmp_path):
    folder = chain_folder(tmp_path, 3)
    file = profiled(tmp_path)
    onnx.save(onnx.load(tmp_path / "model.onnx"), tmp_path / "other.onnx")
    with (tmp_path / "other.onnx").open("ab") as other:
        other.write(b"\x32\x00")  # an empty producer's name
    file.write_text(profile_of(tmp_path / "other.onnx", 3, kind_of(3, (10.0,), "local_cpu0")))
    assert "profile.json: is a profile of 'other.onnx'" in mistakes(folder, "--profile", file)


def test_a_profile_of_other_sizes_is_refused(tmp_path):
    folder = chain_folder(tmp_path, 3)
    file = profiled(tmp_path)
    profile = json.loads(file.read_text())
    given = {"name": "x", "dtype": "float32", "shape": [9, 16], "symbols": ["n", ""]}
    profile["model"]["inputs"] = [given]
    file.write_text(json.dumps(profile))
    assert (
        "profile.json: was measured with input 'x' of at most [9, 16], not [1, 16]; give the sizes"
        in mistakes(folder, "--profile", file)
    )


@NEEDS_FIRST_CORES
def test_an_accelerator_that_was_not_profiled_is_named(tmp_path):
    folder = chain_folder(tmp_path, 3)
    text = mistakes(folder, "--profile", profiled(tmp_path, "local_cpu77"))
    assert "the accelerator 'local_cpu0' was not measured" in text


def test_traces_are_checked_line_by_line(tmp_path):
    trace = tmp_path / "trace.txt"
    trace.write_text("0\nsoon\n-1\n2\n1\nnan\n")
    with pytest.raises(RankSliceError) as caught:
        arrivals_in(trace)
    assert [
        "trace.txt, line 2: 'soon' is not a time",
        "trace.txt, line 3: '-1' is not a time",
        "trace.txt, line 5: 1 comes after 2",
        "trace.txt, line 6: 'nan' is not a time",
    ] == [str(mistake).partition(";")[0] for mistake in caught.value.mistakes]


def test_layers_of_models_of_several_files_cannot_be_split(tmp_path):
    part = {"layers": ["backbone"], "by": "outputs"}
    (tmp_path / "mapping.json").write_text(
        json.dumps({"local_cpu0": [part, "head"], "local_cpu1": [part]})
    )
    model = Path(__file__).parents[3] / "models" / "digit_detector-parts.yaml"
    ended = rankslice("simulate", model, "--mapping", tmp_path / "mapping.json")
    assert 1 == ended.code
    assert "local_cpu0[0]: layers of .yaml models cannot be split" in ended.err
