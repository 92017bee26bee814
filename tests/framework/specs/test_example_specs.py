from pathlib import Path

import pytest
from line_graphs import line_graph

from rankslice.framework.specs.assign import assign
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.specs.read_mapping import mapping_of, read_horizontal, read_mapping
from rankslice.framework.specs.read_platform import read_platform

ROOT = Path(__file__).parents[3]

AUTODICE_MAPPING = '{"lenovo_cpu0": ["conv1_1", "conv1_2"], "lenovo_cpu1": ["fc6_3", "prob_1"]}'
AUTODICE_PLATFORM = "nx01\nnx02\nnx03\nnx04\n"


@pytest.mark.parametrize("path", sorted((ROOT / "platforms").iterdir()), ids=lambda path: path.name)
def test_every_shipped_platform_loads(path: Path) -> None:
    assert read_platform(path).boards


SPLITS = "*-horizontal.json"
"""Second files of AutoDiCE beside a mapping."""

MAPPINGS = sorted(path for path in (ROOT / "mappings").iterdir() if not path.match(SPLITS))


@pytest.mark.parametrize("path", MAPPINGS, ids=lambda path: path.name)
def test_every_shipped_mapping_loads(path: Path) -> None:
    assert read_mapping(path).entries


@pytest.mark.parametrize("path", [*(ROOT / "mappings").glob(SPLITS)], ids=lambda path: path.name)
def test_every_shipped_file_of_splits_loads(path: Path) -> None:
    assert read_horizontal(path)


def test_figure_2_of_the_autodice_paper_is_placed_and_assigned() -> None:
    mapping = read_mapping(ROOT / "mappings" / "autodice-figure2.json")
    platform = read_platform(ROOT / "platforms" / "autodice-figure2.txt")
    figure = line_graph(
        """
        MaxPool1: x -> Buff1
        Conv1: Buff1 -> Buff3
        FC1: Buff1 -> Buff2
        Add1: Buff2 Buff3 -> Buff4
        Relu1: Buff4 -> y
        """,
        outputs="y",
    )
    ranks = place_ranks(mapping, platform).ranks
    assert [("edge01", (1, 2, 3)), ("edge01", (0,)), ("edge04", (4, 5))] == [
        (rank.board, rank.cores) for rank in ranks
    ]
    assert (("MaxPool1", "Add1"), ("FC1",), ("Conv1", "Relu1")) == assign(mapping, figure).layers


def test_autodices_own_example_runs_where_its_board_is(tmp_path: Path) -> None:
    (tmp_path / "mapping.json").write_text(AUTODICE_MAPPING)
    (tmp_path / "platform.txt").write_text("lenovo\n")
    mapping = read_mapping(tmp_path / "mapping.json")
    ranks = place_ranks(mapping, read_platform(tmp_path / "platform.txt")).ranks
    assert [(0,), (1,)] == [rank.cores for rank in ranks]


def test_boards_without_a_resource_are_their_cpus_as_in_autodices_repository(
    tmp_path: Path,
) -> None:
    (tmp_path / "3mapping.json").write_text('{"nx01": ["conv1_1"], "nx02": ["norm2_1", "prob_1"]}')
    (tmp_path / "platform.txt").write_text("nx01\nnx02, arm, slots=0-5\n")
    mapping = read_mapping(tmp_path / "3mapping.json")
    ranks = place_ranks(mapping, read_platform(tmp_path / "platform.txt")).ranks
    assert [("nx01", "cpu", (0,)), ("nx02", "cpu", (0, 1, 2, 3, 4, 5))] == [
        (rank.board, rank.accelerator, rank.cores) for rank in ranks
    ]


@pytest.mark.parametrize(
    "line", ["a, arm, slots=0-5, gpu=Mali (Vulkan)", "a, arm, slots=0-5, Adreno"]
)
def test_a_gpu_without_cuda_runs_models_of_each_format(tmp_path: Path, line: str) -> None:
    (tmp_path / "platform.txt").write_text(line)
    platform = read_platform(tmp_path / "platform.txt")
    mapping = mapping_of({"a_gpu": ["conv1_1"]})
    (onnx,) = place_ranks(mapping, platform, default_engine="onnxruntime").ranks
    (tflite,) = place_ranks(mapping, platform, default_engine="litert").ranks
    webgpu = (("provider", "WebGPU"), ("plugin", "onnxruntime-ep-webgpu"))
    assert ("onnxruntime", webgpu) == (onnx.engine, onnx.options)
    assert ("litert", ()) == (tflite.engine, tflite.options)
