"""The model that was sliced, read again as ``build`` has read it."""

from __future__ import annotations

from pathlib import Path

from rankslice.framework.plan import Plan
from rankslice.frontend.formats import Model, find_format, read_model
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.session.build_folder import unsliced_model


def built_model(folder: Path, plan: Plan, purpose: str) -> Model:
    """Return the model of a build folder, with the sizes that it was built with.

    Messages have the purpose: ``inspect it``.

    Raises:
        RankSliceError: it is not there any more, has changed, or cannot be read.
    """
    model = unsliced_model(folder, plan, purpose)
    tensors = plan.job.tensors
    brought = [tensors[name] for name in plan.inputs]
    fixed = {tensor.name: tensor.shape or () for tensor in brought if not tensor.is_open}
    kind = find_format(model)
    bounded = brought if kind is not None and kind.is_converted else plan.job.tensors.values()
    at_most = {tensor.name: tensor.shape or () for tensor in bounded if tensor.is_open}
    loaded = read_model(model, GivenSizes(fixed, at_most))
    # Of an input with open sizes, others may be fixed that the file leaves open.
    closed = {
        symbol: (size,)
        for tensor in loaded.graph.inputs
        if tensors[tensor.name].is_open
        for symbol, wanted, size in zip(
            tensor.symbols, tensors[tensor.name].symbols, tensor.shape or (), strict=True
        )
        if symbol and not wanted
    }
    if closed:
        loaded = read_model(model, GivenSizes({**fixed, **closed}, at_most))
    return loaded
