"""Which tensors are there while a model runs layer by layer, and how much memory they take."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from rankslice.framework.graph import Graph, Layer, Tensor, constant_layers
from rankslice.frontend.partition.partition import used_layers


@dataclass(frozen=True, slots=True)
class Lifetime:
    """From when to when a tensor is needed, as positions among the running layers."""

    tensor: Tensor
    first: int
    """The layer that makes it. For a model input: the first layer that reads any model input."""
    last: int
    """The last layer that needs it. For a model output at the earliest the layer that makes the
    last of them: results leave together."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The moment at which the most is held."""

    nbytes: int
    """Size of all tensors that are there at once; those of unknown size count nothing."""
    layer: str
    """The layer that runs then; empty for a model in which none does."""
    unsized: tuple[str, ...]
    """Names of the tensors that somebody needs and whose size is not known beforehand."""


def running_layers(graph: Graph) -> tuple[Layer, ...]:
    """Return the layers that run for every frame, in the graph's order.

    Left out are layers that give the same for every frame, and layers that no output needs.
    """
    kept = used_layers(graph) - constant_layers(graph)
    return tuple(layer for layer in graph.layers if layer.name in kept)


def lifetimes(graph: Graph) -> tuple[Lifetime, ...]:
    """Return the lifetimes of all tensors that running layers make or read, inputs first.

    What constant layers make is not among them: it is held all the time, as weights are.
    """
    running = running_layers(graph)
    output_names = {tensor.name for tensor in graph.outputs}
    input_names = {tensor.name for tensor in graph.inputs}
    last = {tensor.name: i for i, layer in enumerate(running) for tensor in layer.inputs}
    made = {tensor.name: i for i, layer in enumerate(running) for tensor in layer.outputs}
    end = max((made[name] for name in output_names if name in made), default=0)
    start = next(
        (i for i, layer in enumerate(running) if any(t.name in input_names for t in layer.inputs)),
        0,
    )

    def needed(tensor: Tensor, first: int) -> Lifetime:
        until = last.get(tensor.name, first)
        return Lifetime(tensor, first, max(until, end) if tensor.name in output_names else until)

    inputs = [needed(t, start) for t in graph.inputs if t.name in last or t.name in output_names]
    inner = [needed(t, i) for i, layer in enumerate(running) for t in layer.outputs]
    return (*inputs, *inner)


def peak_memory(graph: Graph) -> Peak:
    """Return the most memory that tensors take when layers run one by one in the graph's order.

    A tensor is held from the layer that makes it to the last one that reads it, both included. No
    layer writes into the memory of its input, as engines sometimes let them.
    """
    running = running_layers(graph)
    spans = lifetimes(graph)
    output_names = {tensor.name for tensor in graph.outputs}
    change = [0] * (len(running) + 1)
    for span in spans:
        change[span.first] += span.tensor.nbytes or 0
        change[span.last + 1] -= span.tensor.nbytes or 0
    sizes = [*accumulate(change[:-1])]
    top = max(range(len(sizes)), key=sizes.__getitem__, default=None)
    return Peak(
        nbytes=0 if top is None else sizes[top],
        layer="" if top is None else running[top].name,
        unsized=tuple(
            span.tensor.name
            for span in spans
            if span.tensor.nbytes is None
            and (span.last > span.first or span.tensor.name in output_names)
        ),
    )


def largest_tensor(graph: Graph) -> Tensor | None:
    tensors = [span.tensor for span in lifetimes(graph)]
    return max(tensors, key=lambda tensor: tensor.nbytes or 0, default=None)
