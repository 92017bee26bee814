"""PipeEdge's three files: what is read of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pipeedge import read_pipeedge

from rankslice.exploration import NoPlanError, optimal_pipeline
from rankslice.framework.errors import RankSliceError

MODELS = """
small:
  layers: 3
  mem_MB: [1, 2, 4.5]
  parameters_in: 10
  parameters_out: [20, 30, 40]
"""
TYPES = """
fast:
  bw_Mbps: 8
  mem_MB: 64
  model_profiles:
    small:
    - {batch_size: 1, dtype: torch.float32, time_s: [9, 9, 9]}
    - {batch_size: 8, dtype: torch.float32, time_s: [1, 2, 3]}
slow:
  bw_Mbps: 4
  mem_MB: 32
  model_profiles:
    small:
    - {batch_size: 8, dtype: torch.float32, time_s: [2, 4, 6]}
other:
  bw_Mbps: 4
  mem_MB: 32
  model_profiles:
"""
DEVICES = "fast: [f0, f1]\nslow: [s0]\nother: []\n"


def read(folder: Path, **texts: str) -> Any:
    """Read the three files, some of them with another text."""
    named = {"models": MODELS, "types": TYPES, "devices": DEVICES, **texts}
    for name in ("models", "types", "devices"):
        (folder / f"{name}.yml").write_text(named[name], encoding="utf-8")
    return read_pipeedge(
        folder / "models.yml", folder / "types.yml", folder / "devices.yml", model="small"
    )


def test_times_and_bytes_are_those_of_a_micro_batch(tmp_path: Path) -> None:
    case = read(tmp_path)
    assert [[1, 2, 3], [2, 4, 6]] == case.times_s.tolist()
    assert [640, 960, 1280] == case.output_bytes.tolist()


def test_a_megabit_has_1024_times_1024_bits(tmp_path: Path) -> None:
    assert [2**20, 2**20, 2**19] == [one.bandwidth_bytes_s for one in read(tmp_path).devices]


def test_a_stage_has_two_buffers_at_either_end_but_the_first_receives_nothing(
    tmp_path: Path,
) -> None:
    case = read(tmp_path)
    assert [320, 3 * 640, 3 * 960] == case.receive_memory_bytes.tolist()
    assert [3 * 640, 3 * 960, 3 * 1280] == case.send_memory_bytes.tolist()


def test_a_stage_needs_less_than_the_memory_there_is(tmp_path: Path) -> None:
    exact = MODELS.replace("[20, 30, 40]", "[0, 0, 0]").replace("_in: 10", "_in: 0")
    types = TYPES.replace("mem_MB: 64", "mem_MB: 7.5")
    devices = "fast: [f0]\n"
    with pytest.raises(NoPlanError) as caught:
        optimal_pipeline(read(tmp_path, models=exact, types=types, devices=devices))
    assert "memory" == caught.value.limit
    roomier = TYPES.replace("mem_MB: 64", "mem_MB: 7.50001")
    case = read(tmp_path, models=exact, types=roomier, devices=devices)
    assert 6.0 == optimal_pipeline(case).bottleneck_s


def test_outputs_that_are_fewer_than_layers_are_repeated(tmp_path: Path) -> None:
    models = MODELS.replace("[20, 30, 40]", "[20, 30]")
    assert [640, 960, 640] == read(tmp_path, models=models).output_bytes.tolist()


def test_types_without_a_profile_are_left_out(tmp_path: Path) -> None:
    case = read(tmp_path, devices="other: [o0]\nslow: [s0]\n")
    assert ["s0"] == [device.name for device in case.devices]
    assert [[2, 4, 6]] == case.times_s.tolist()


def test_hosts_stand_there_once(tmp_path: Path) -> None:
    case = read(tmp_path, devices="fast: [f0, f0]")
    with pytest.raises(RankSliceError, match="'f0' appears again"):
        optimal_pipeline(case)
