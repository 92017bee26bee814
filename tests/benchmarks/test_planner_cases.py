"""ViT-Base and ViT-Large on one to three types of device: the optima are known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pipeedge import read_pipeedge

from rankslice.exploration import optimal_pipeline

CASES = Path(__file__).parent / "planner_cases"
OPTIMA: dict[str, float] = json.loads((CASES / "optima.json").read_text(encoding="utf-8"))
TYPES = ("Minnowboard-E3845", "RCC-VE-C2000", "TypeC-scaled")
MODELS = {"48": "google/vit-base-patch16-224", "96": "google/vit-large-patch16-224"}


def devices_text(types: int, hosts: int) -> str:
    """Return a devices file with so many hosts of each of the first types."""
    lines = (
        f"{name}: [{', '.join(f'{name[:3].lower()}-{host}' for host in range(hosts))}]"
        for name in TYPES[:types]
    )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", OPTIMA)
def test_the_known_optimum_is_reached(name: str, tmp_path: Path) -> None:
    found = re.fullmatch(r"vit(\d+)_(\d)t_(\d+)h", name)
    assert found is not None
    layers, types, hosts = found.groups()
    devices = tmp_path / "devices.yml"
    devices.write_text(devices_text(int(types), int(hosts)), encoding="utf-8")
    case = read_pipeedge(
        CASES / "models.yml", CASES / "device_types.yml", devices, model=MODELS[layers]
    )
    pipeline = optimal_pipeline(case)
    assert OPTIMA[name] == float(f"{pipeline.bottleneck_s:.9g}")
    assert pipeline.proven
    assert pipeline.bound_s == pipeline.bottleneck_s
