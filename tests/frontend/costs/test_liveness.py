"""Which tensors are there at once."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from line_graphs import line_graph
from strategies import random_graphs

from rankslice.frontend.costs.liveness import largest_tensor, lifetimes, peak_memory, running_layers

SIZE = 16
"""Bytes of every tensor of a line graph."""


def spans(graph):
    return {span.tensor.name: (span.first, span.last) for span in lifetimes(graph)}


def test_a_tensor_lives_until_its_last_reader():
    graph = line_graph("a: x -> t\n b: t -> u\n c: u t -> y", outputs="y")
    assert {"x": (0, 0), "t": (0, 2), "u": (1, 2), "y": (2, 2)} == spans(graph)


def test_outputs_wait_for_the_last_one():
    graph = line_graph("a: x -> y\n b: y -> t\n c: t -> z\n", outputs="y z")
    assert (0, 2) == spans(graph)["y"]


def test_inputs_come_together():
    graph = line_graph("a: x -> t\n b: t -> u\n c: u v -> y", inputs="x v w", outputs="y")
    assert (0, 2) == spans(graph)["v"]
    assert "w" not in spans(graph)


def test_layers_that_are_constant_or_that_nobody_needs_do_not_run():
    graph = line_graph("c: -> k\n a: x k -> y\n n: y -> nothing", outputs="y")
    assert ["a"] == [layer.name for layer in running_layers(graph)]
    assert {"x": (0, 0), "y": (0, 0)} == spans(graph)


def test_a_result_that_nobody_reads_lives_while_it_is_made():
    graph = line_graph("a: x -> t mask\n b: t -> y", outputs="y")
    assert (0, 0) == spans(graph)["mask"]


def test_a_chain_holds_two_tensors_at_once():
    graph = line_graph("a: x -> t\n b: t -> u\n c: u -> y", outputs="y")
    assert (2 * SIZE, "a", ()) == (
        peak_memory(graph).nbytes,
        peak_memory(graph).layer,
        peak_memory(graph).unsized,
    )


def test_a_skip_connection_is_held_until_it_is_read():
    graph = line_graph("a: x -> t\n b: t -> u\n c: u -> v\n d: v t -> y", outputs="y")
    assert (3 * SIZE, "c") == (peak_memory(graph).nbytes, peak_memory(graph).layer)


@given(random_graphs())
def test_the_peak_is_what_a_simulation_finds(graph):
    layers = running_layers(graph)
    needed = [{t.name for later in layers[i:] for t in later.inputs} for i in range(len(layers))]
    outputs = {tensor.name for tensor in graph.outputs}
    inputs = {tensor.name for tensor in graph.inputs}
    # Inputs come with their first reader, outputs leave with the last one.
    reading = [i for i, layer in enumerate(layers) if any(t.name in inputs for t in layer.inputs)]
    making = [i for i, layer in enumerate(layers) if any(t.name in outputs for t in layer.outputs)]
    size = {t.name: t.nbytes for layer in layers for t in (*layer.inputs, *layer.outputs)}
    constant = {t.name for layer in graph.layers if layer not in layers for t in layer.outputs}
    made, most = set(), 0
    for index, layer in enumerate(layers):
        if reading and index == reading[0]:
            made |= inputs
        made |= {tensor.name for tensor in layer.outputs}
        kept = needed[index] | {tensor.name for tensor in layer.outputs}
        kept |= outputs if index <= max(making) else set()
        most = max(most, sum(size.get(name) or 0 for name in (made & kept) - constant))
    assert most == peak_memory(graph).nbytes


def test_the_largest_tensor_is_the_first_of_the_largest():
    graph = line_graph("a: x -> t\n b: t -> y", outputs="y")
    assert "x" == largest_tensor(graph).name


def test_a_result_of_unknown_size_that_nobody_needs_is_not_told():
    graph = line_graph("a: x -> t mask\n b: t -> y", outputs="y")
    unsized = [
        replace(layer, outputs=tuple(replace(t, shape=None) for t in layer.outputs))
        for layer in graph.layers
    ]
    graph = replace(graph, layers=tuple(unsized))
    assert ("t", "y") == peak_memory(graph).unsized
