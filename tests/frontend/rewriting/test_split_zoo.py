"""Published networks with split layers, run part by part, against the unsliced ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from split_models import block, check_split

from rankslice.framework.graph import PartOf
from rankslice.frontend.formats import read_model
from rankslice.networks.zoo import zoo_model

pytestmark = pytest.mark.ci

PARTS = ((0, 1), (1, 2), (2, 1))
NETWORKS = ("squeezenet", "resnet50", "inception_v1", "densenet121", "shufflenet")


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    ("by", "halo"), [("rows", "recompute"), ("columns", "exchange"), ("outputs", "recompute")]
)
def test_a_whole_network_is_split(network: str, by: str, halo: str, tmp_path: Path) -> None:
    path = zoo_model(network)
    graph = read_model(path).graph
    names = [layer.name for layer in graph.layers]
    inputs = {
        tensor.name: np.random.default_rng(0).standard_normal(tensor.shape).astype(tensor.dtype)
        for tensor in graph.inputs
    }
    cut, _ = check_split(path, [block(names, by, PARTS, halo)], tmp_path / "out", inputs=inputs)
    made = [layer for one in cut.segments for layer in one.layers]
    parts = {layer.origin for layer in made if isinstance(layer.making, PartOf)}
    assert len(parts) > len(names) / 2
