"""Clusters of cores: in platform files, as devices of their own, and in mappings that mix them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from chains import Tried
from line_graphs import line_graph

from rankslice.exploration import Device as PlannedDevice, LayerChain, NoPlanError, optimal_pipeline
from rankslice.exploration.problem.devices import default_keys, kinds_and_devices
from rankslice.framework.errors import RankSliceError
from rankslice.framework.platform import Accelerator, Board, Cluster, Platform
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.specs.read_mapping import mapping_of
from rankslice.framework.specs.read_platform import read_platform
from rankslice.session.building.cut_mapping import mapping_of_cuts

RUBIK_PI = Path(__file__).parents[3] / "platforms" / "rubikpi3.yaml"
CHAIN = line_graph("".join(f"l{n}: t{n} -> t{n + 1}\n" for n in range(8)), outputs="t8")


def board_of(folder: Path, text: str) -> Board:
    path = folder / "platform.yaml"
    path.write_text(f"boards: {{edge: {text}}}\n")
    return read_platform(path).boards[0]


def test_clusters_are_read_with_what_is_known_of_them(tmp_path: Path) -> None:
    text = (
        "{clusters: {little: 0-3, big: {cores: [4, 5], kind: Cortex-A78, max_mhz: 2400}, one: 6}}"
    )
    board = board_of(tmp_path, text)
    assert (
        Cluster("little", (0, 1, 2, 3)),
        Cluster("big", (4, 5), "Cortex-A78", 2400.0),
        Cluster("one", (6,)),
    ) == board.clusters
    assert tuple(range(7)) == board.cores
    assert ((4, 5), (0, 1, 2, 3), (6,)) == board.cpus


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{clusters: {a: 0-3, b: 3-4}}", "core 3 is in 'a' and 'b'"),
        ("{cores: 0-3, clusters: {a: 0-1, b: 2}}", "core 3 is in no cluster"),
        ("{cores: 0-1, clusters: {a: 0-2}}", "core 2 of a cluster is not among the cores"),
        ("{clusters: {a: {kind: x}}}", "boards.edge.clusters.a: 'cores' is missing"),
        ("{clusters: {a: {cores: 0, mhz: 3}}}", "unknown key 'mhz'"),
        ("{clusters: {a: many}}", "expected cores such as 0-3, 7 or [4, 5, 6]"),
        ("{clusters: 4}", "expected cores by cluster"),
    ],
)
def test_clusters_that_do_not_fit_are_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(RankSliceError) as caught:
        board_of(tmp_path, text)
    assert expected in str(caught.value)


def test_an_accelerator_of_eleven_is_found_by_its_rank_s_name() -> None:
    gpus = tuple(Accelerator(f"engine{number}") for number in range(11))
    board = Board("edge", "edge", gpus=gpus)
    assert gpus == tuple(board.accelerator(f"gpu{number}") for number in range(11))
    assert board.accelerator("npu") is None


def test_each_cluster_of_a_rubik_pi_is_a_device() -> None:
    platform = read_platform(RUBIK_PI)
    keys = [key for key in default_keys(platform) if "_cpu" in key]
    assert ["rubikpi1_cpu7", "rubikpi1_cpu4-6", "rubikpi1_cpu0-3"] == keys[:3]
    kinds, devices = kinds_and_devices(keys, platform)
    assert 3 == len(kinds)
    assert [0, 1, 2] * 3 == [device.kind for device in devices]


def test_cores_of_a_cluster_are_of_one_kind() -> None:
    platform = read_platform(RUBIK_PI)
    keys = ["rubikpi1_cpu4", "rubikpi1_cpu6", "rubikpi2_cpu5", "rubikpi1_cpu7", "rubikpi1_cpu0"]
    _, devices = kinds_and_devices(keys, platform)
    assert [0, 0, 0, 1, 2] == [device.kind for device in devices]


def test_slices_by_cuts_take_the_fast_clusters_first_and_mix_none() -> None:
    platform = read_platform(RUBIK_PI)
    entries = mapping_of_cuts((2, 3, 4, 5))(CHAIN, platform).entries
    expected = ["cpu7", "cpu4-6", "cpu2-3", "gpu", "npu"]
    assert [f"rubikpi1_{unit}" for unit in expected] == [entry.key for entry in entries]


def test_a_mapping_that_mixes_clusters_is_warned_of() -> None:
    mapping = mapping_of({"rubikpi1_cpu3-4": ["l0"], "rubikpi1_cpu5-6": ["l1"]})
    (warning,) = place_ranks(mapping, read_platform(RUBIK_PI)).warnings
    assert (
        "mapping: rubikpi1_cpu3-4: cores 3-4 are of the clusters 'little' and 'big';"
        " a rank is as fast as the slowest of its cores"
    ) == warning


def random_boards(draw: np.random.Generator) -> Platform:
    """Return two boards at most, whose cores are in one to three clusters."""
    boards = []
    for number in range(int(draw.integers(1, 3))):
        ends = np.cumsum(draw.integers(1, 3, int(draw.integers(1, 4)))).tolist()
        clusters = tuple(
            Cluster(f"c{place}", tuple(range(begin, end)), "", float(draw.integers(1, 4)))
            for place, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))
        )
        boards.append(Board(f"b{number}", "h", cores=tuple(range(ends[-1])), clusters=clusters))
    return Platform("boards.yaml", tuple(boards))


def planned_and_tried(seed: int) -> tuple[float, float]:
    """Plan a random chain on the devices of boards with clusters; return that, and the best."""
    draw = np.random.default_rng(seed)
    platform = random_boards(draw)
    kinds, devices = kinds_and_devices(default_keys(platform), platform)
    clusters = {
        (board.name, cluster.cores) for board in platform.boards for cluster in board.clusters
    }
    layers = int(draw.integers(1, 7))
    limits = draw.choice([12.0, 20.0, math.inf], (len(platform.boards), 2)).tolist()
    case = {
        "times_s": draw.random((len(kinds), layers)),
        "output_bytes": draw.integers(0, 20, layers).astype(float),
        "memory_bytes": draw.integers(0, 5, layers),
        "devices": [
            PlannedDevice(
                device.key,
                device.kind,
                platform.boards[device.board].name,
                *limits[device.board],
            )
            for device in devices
        ],
    }
    assert clusters == {(platform.boards[d.board].name, d.cores) for d in devices}
    try:
        least = optimal_pipeline(LayerChain(**case)).bottleneck_s
    except NoPlanError:
        least = math.inf
    return least, Tried(case, "throughput", math.inf).run()


@pytest.mark.parametrize(
    "seeds",
    [range(100), pytest.param(range(100, 1000), marks=pytest.mark.ci)],
    ids=["first", "others"],
)
def test_no_pipeline_of_clusters_is_faster_than_the_planned_one(seeds: range) -> None:
    for seed in seeds:
        least, best = planned_and_tried(seed)
        assert least == pytest.approx(best, rel=1e-12), seed
