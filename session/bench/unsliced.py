"""The unsliced model as a job of one rank, on an accelerator of a sliced one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rankslice.backend.boards.login import board_logins, is_this_machine
from rankslice.backend.runtime.job import Rank
from rankslice.framework.graph import Graph
from rankslice.framework.mapping import Mapping as LayerMapping, MappingEntry
from rankslice.framework.plan import Plan
from rankslice.framework.platform import Accelerator, Board, Platform
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.session.build_folder import reference_model
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.deployment import deploy, plan_deployment

_NAME = "unsliced"


def build_unsliced(folder: Path, plan: Plan, out: Path, ssh_config: Path | None) -> Rank:
    """Build the unsliced model for the accelerator where frames enter; return where it runs.

    If the source's rank has no layers, it is the accelerator of the first ones.

    Raises:
        RankSliceError: the model is not there any more, or cannot be built.
    """
    model = reference_model(folder, plan, "measure it")
    first = plan.job.source if plan.of_rank(plan.job.source) else plan.segments[0].rank
    rank = plan.ranks[first]
    users = {login.board: login.user for login in board_logins(folder, plan)}
    key = re.sub(r"\.\d+$", "", rank.key)

    def whole(graph: Graph, platform: Platform) -> LayerMapping:
        layers = tuple(layer.name for layer in graph.layers)
        return LayerMapping(_NAME, (MappingEntry(key, layers),))

    platform = _platform(rank, users)
    built = build(model, whole, platform, out, BuildOptions(sizes=_sizes(plan)))
    if not is_this_machine(rank.host):
        deploy(plan_deployment(built.folder, ssh_config=ssh_config))
    return rank


def _platform(rank: Rank, users: Mapping[str, str]) -> Platform:
    unit = Accelerator(rank.engine, rank.options, rank.environment, rank.allow_fallback)
    kind, number = rank.accelerator[:3], int(rank.accelerator[3:] or 0)
    board = Board(
        name=rank.board,
        host=rank.host,
        user=users.get(rank.board, ""),
        cores=rank.cores,
        gpus=(unit,) * (number + 1) if kind == "gpu" else (),
        npus=(unit,) * (number + 1) if kind == "npu" else (),
        engine=rank.engine if kind == "cpu" else "",
        cpu=unit if kind == "cpu" else None,
    )
    return Platform(_NAME, (board,))


def _sizes(plan: Plan) -> GivenSizes:
    largest = {
        tensor.name: tensor.shape
        for tensor in plan.job.tensors.values()
        if tensor.shape is not None and any(tensor.symbols)
    }
    fixed = {
        tensor.name: tensor.shape
        for tensor in plan.job.tensors.values()
        if tensor.shape is not None and tensor.name in plan.inputs
        if tensor.name not in largest
    }
    return GivenSizes(fixed, largest)
