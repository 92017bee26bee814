"""Jobs with two routes under a real mpirun: every bit is that of the unsliced model, in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import rankslice, succeed
from real_jobs import debians_mpirun, let_ranks_sleep, shared_keys

from rankslice.session.building.build import BuildOptions, build

MODELS = Path(__file__).parents[2] / "models"
BURSTS = [*(0.05 * n for n in range(20)), *([1.0] * 40), *(3.0 + 0.05 * n for n in range(20))]
"""Twenty arrivals a second, then forty at once, then twenty a second again."""


def routed(folder: Path) -> Path:
    """Build the digits' network for one rank, and for three in a surge, two of which take turns."""
    keys = shared_keys(3)
    normal = {keys[0]: ["conv1..softmax"]}
    surge = {keys[0]: ["conv1..pool1"], f"{keys[1]}*2|{keys[2]}*1": ["conv3..softmax"]}
    for name, mapping in (("normal", normal), ("surge", surge)):
        (folder / f"{name}.json").write_text(json.dumps(mapping))
    options = BuildOptions(share_cores=True, surge=folder / "surge.json")
    model = MODELS / "digits.onnx"
    return build(model, folder / "normal.json", "local", folder / "out", options).folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder of the digits' network."""
    return routed(tmp_path_factory.mktemp("routed"))


@pytest.fixture(scope="module")
def bursts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with arrivals that come in bursts."""
    path = tmp_path_factory.mktemp("trace") / "bursts.txt"
    path.write_text("# seconds\n" + "".join(f"{time:.3f}\n" for time in BURSTS))
    return path


def ran(folder: Path, *options: object) -> tuple[str, dict[str, Any]]:
    """Run a job with exact verification; return what was shown, and the figures."""
    figures = folder.parent / "figures.json"
    ended = succeed("run", folder, "--json", figures, "--verify", "exact", *map(str, options))
    return ended.out, json.loads(figures.read_text())


def assert_all_came_out_right(figures: dict[str, Any], frames: int) -> None:
    assert frames == figures["frames"] == figures["completed"] == figures["verify"]["frames"]
    assert figures["verify"]["bit_equal"]
    assert [] == figures["dropped"]


def handled(figures: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return how many frames each rank handled on the normal route and in the surge."""
    ranks = figures["ranks"]
    return [rank["frames"] for rank in ranks], [rank["surge"]["frames"] for rank in ranks]


def assert_routes_alternate(figures: dict[str, Any]) -> None:
    """The listed changes agree with what ranks have computed."""
    switches, frames = figures["switches"], figures["frames"]
    assert [each["route"] for each in switches] == [
        ("surge", "normal")[number % 2] for number in range(len(switches))
    ]
    times = [each["time_s"] for each in switches]
    assert sorted(times) == times
    ends = [*(each["frame"] for each in switches), frames][1:]
    in_surge = sum(
        end - each["frame"]
        for each, end in zip(switches, ends, strict=True)
        if each["route"] == "surge"
    )
    normal, surge = handled(figures)
    assert [frames - in_surge, 0, 0] == normal
    assert in_surge == surge[0] == surge[1] + surge[2]


def test_frames_take_the_route_that_is_chosen_and_are_right_on_each(digits: Path) -> None:
    shown, figures = ran(digits, "--frames", "30", "--switch", "surge", "--window", "3")
    assert_all_came_out_right(figures, 30)
    assert ([0, 0, 0], [30, 20, 10]) == handled(figures)
    (switch,) = figures["switches"]
    del switch["time_s"], switch["waiting"]
    assert {"frame": 0, "route": "surge", "reason": "as --switch says"} == switch
    assert "surge from frame 0 on" in shown
    assert "0 frames took the normal route, 30 the surge route" in shown


@pytest.mark.ci
@pytest.mark.parametrize(
    "options", [(), ("--no-direct",), ("--window", "1"), ("--no-direct", "--window", "1")]
)
def test_the_normal_route_alone_leaves_the_other_ranks_idle(
    digits: Path, options: tuple[str, ...]
) -> None:
    shown, figures = ran(digits, "--frames", "40", "--switch", "normal", *options)
    assert_all_came_out_right(figures, 40)
    assert ([40, 0, 0], [0, 0, 0]) == handled(figures)
    assert [] == figures["switches"]
    assert "40 frames took the normal route, 0 the surge route" in shown


@pytest.mark.ci
@pytest.mark.parametrize(
    "options", [(), ("--no-direct",), ("--latency",), ("--no-direct", "--window", "1")]
)
def test_bursts_change_the_route_and_no_frame_is_lost(
    digits: Path, bursts: Path, options: tuple[str, ...]
) -> None:
    way = ("--arrivals", bursts, "--surge-queue", "2", "--queue", "60", "--normal-after", "0.1")
    shown, figures = ran(digits, *way, *options)
    assert_all_came_out_right(figures, len(BURSTS))
    assert_routes_alternate(figures)
    switches = figures["switches"]
    assert len(switches) > 1
    assert [] == [each for each in switches if each["route"] == "surge" and each["waiting"] < 1]
    assert all(each["reason"] for each in switches)
    for each in switches:
        told = f"{each['time_s']:.2f} s: {each['route']} from frame {each['frame']} on"
        assert f"{told}, {each['waiting']} waiting: {each['reason']}" in shown
    assert figures["bottleneck"].startswith("on the ")


@pytest.mark.ci
@pytest.mark.parametrize("options", [(), ("--no-direct",)])
def test_debians_open_mpi_changes_the_route(
    digits: Path, bursts: Path, options: tuple[str, ...]
) -> None:
    way = ("--arrivals", bursts, "--surge-queue", "2", "--normal-after", "0.1", "--queue", "60")
    _, figures = ran(digits, "--mpirun", debians_mpirun(), *way, *options)
    assert_all_came_out_right(figures, len(BURSTS))
    assert_routes_alternate(figures)
    assert len(figures["switches"]) > 1


@pytest.mark.ci
def test_a_burst_begins_a_surge_and_its_end_ends_it(tmp_path: Path) -> None:
    """Twenty frames a second are no surge for a rank that takes 10 ms; forty at once are one."""
    folder = routed(tmp_path)
    let_ranks_sleep(folder, 10)
    (tmp_path / "bursts.txt").write_text("\n".join(map(str, BURSTS)))
    figures = tmp_path / "figures.json"
    ended = rankslice(
        *("run", folder, "--arrivals", tmp_path / "bursts.txt", "--queue", "60", "--json", figures),
        *("--normal-after", "0.3"),
    )
    assert (0, "") == (ended.code, ended.err)
    told = json.loads(figures.read_text())
    begin, end = told["switches"]
    assert ("surge", "normal") == (begin["route"], end["route"])
    assert 20 <= begin["frame"] < 30
    assert 60 <= end["frame"] < 75
    assert begin["waiting"] >= 8


@pytest.mark.ci
@pytest.mark.parametrize("frames", [0, 1])
@pytest.mark.parametrize("switch", ["normal", "surge", "auto"])
def test_a_stream_may_end_before_it_begins(digits: Path, frames: int, switch: str) -> None:
    figures = digits.parent / "short.json"
    ended = rankslice("run", digits, "--frames", str(frames), "--switch", switch, "--json", figures)
    assert (0, "") == (ended.code, ended.err)
    assert frames == json.loads(figures.read_text())["completed"]
