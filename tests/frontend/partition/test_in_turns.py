"""Segments for each of several ranks that take turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from line_graphs import line_graph
from onnx_models import read
from plans import turn_weights
from strategies import mapped_graphs
from tflite_models import Made, constant, made, model_file, operator

from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Graph
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.frontend.partition.partition import Partition, in_turns, partition

CHAIN = line_graph("a: x -> s\nb: s -> t\nc: t -> y", outputs="y")


def shown(found: Partition) -> list[tuple[int, int, str]]:
    return [(s.rank, s.index, " ".join(layer.name for layer in s.layers)) for s in found.segments]


def test_each_rank_that_takes_turns_has_the_segments_of_its_entry() -> None:
    cut = partition(CHAIN, {"a": 0, "b": 1, "c": 0})
    assert [
        *[(0, 0, "a"), (1, 0, "a")],
        *[(2, 0, "b"), (3, 0, "b"), (4, 0, "b")],
        *[(0, 1, "c"), (1, 1, "c")],
    ] == shown(in_turns(cut, [(0, 1), (2, 3, 4)]))


def test_ranks_of_their_own_keep_their_segments() -> None:
    cut = partition(CHAIN, {"a": 0, "b": 1, "c": 0})
    assert cut == in_turns(cut, [(0,), (1,)])


def test_constant_layers_are_copied_to_each_rank() -> None:
    graph = line_graph("k: -> w\na: x w -> s\nb: s w -> y", outputs="y")
    found = in_turns(partition(graph, {"a": 0, "b": 1}), [(0,), (1, 2)])
    assert [(0, 0, "k a"), (1, 0, "k b"), (2, 0, "k b")] == shown(found)
    assert [{"k"}] * 3 == [{*segment.copies} for segment in found.segments]


@given(mapped_graphs(), turn_weights(4))
def test_every_rank_makes_what_its_entry_makes_in_the_same_order(
    mapped: tuple[Graph, dict[str, int]], weights: dict[int, tuple[int, ...]]
) -> None:
    graph, entry_of = mapped
    cut = partition(graph, entry_of)
    ranks: list[tuple[int, ...]] = []
    for entry in range(max(entry_of.values()) + 1):
        first = sum(map(len, ranks))
        ranks.append(tuple(range(first, first + len(weights.get(entry, (1,))))))
    found = in_turns(cut, ranks)
    for entry, numbers in enumerate(ranks):
        expected = [s[1:] for s in shown(cut) if s[0] == entry]
        for rank in numbers:
            assert expected == [s[1:] for s in shown(found) if s[0] == rank]


def refused(graph: Graph, ranks: tuple[int, ...] = (0, 1)) -> list[str]:
    """Return what is said of a whole model whose ranks take turns."""
    cut = partition(graph, {layer.name: 0 for layer in graph.layers})
    with pytest.raises(RankSliceError) as caught:
        in_turns(cut, [ranks])
    end = ", and ranks that take turns share no state; map it to a key of one rank"
    message = str(caught.value).splitlines()
    assert all(line.endswith(f" from frame to frame{end}") for line in message)
    return [line.removesuffix(f" from frame to frame{end}") for line in message]


def tflite(name: str) -> Graph:
    return read_tflite(model_file(name)).graph


def test_a_variable_of_a_tflite_model_is_refused_at_each_layer_that_uses_it() -> None:
    states = {
        "CALL_ONCE_0": "the variable 'total'",
        "VAR_HANDLE_1": "the resource in tensor 3 'total'",
        "READ_VARIABLE_2": "the resource in tensor 3 'total'",
        "ASSIGN_VARIABLE_9": "the resource in tensor 3 'total'",
    }
    assert [
        f"variable.tflite: layer '{layer}': it keeps {state}" for layer, state in states.items()
    ] == refused(tflite("variable"))


def test_a_variable_tensor_of_a_tflite_model_is_refused() -> None:
    (message,) = refused(tflite("variable_tensor"))
    assert message.startswith(
        "variable_tensor.tflite: layer 'SVDF_1': it keeps the variable tensor "
    )


def test_a_hash_table_of_a_tflite_model_is_refused() -> None:
    message = refused(tflite("hash_table"))
    assert ["CALL_ONCE_0", "HASHTABLE_1", "HASHTABLE_FIND_2"] == [x.split("'")[1] for x in message]
    assert message[0].endswith("it keeps the hash table 835449204")


def test_random_numbers_of_a_tflite_model_are_refused(tmp_path: Path) -> None:
    sized = {name: Made((1, 4)) for name in ("x", "noise", "y")}
    tensors = {**sized, "sizes": constant([1, 4], "int32")}
    operators = [operator("RANDOM_UNIFORM", "sizes", "noise"), operator("ADD", "x noise", "y")]
    path = made(tmp_path / "noisy.tflite", tensors, operators, "x", "y")
    (message,) = refused(read_tflite(path).graph)
    assert "layer 'RANDOM_UNIFORM_0': it keeps a generator of random numbers" in message


def test_a_custom_operator_may_be_in_turns() -> None:
    graph = tflite("custom_in_between")
    (special,) = (layer for layer in graph.layers if layer.op == "Vendor.Special")
    assert not special.deterministic
    cut = partition(graph, {layer.name: 0 for layer in graph.layers})
    assert [0, 1] == [segment.rank for segment in in_turns(cut, [(0, 1)]).segments]


NOISY = """
    <ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    g (float[1, 3] x, bool c) => (float[1, 3] y) {
        [noise] n = RandomNormalLike(x)
        [called] m = mine.Noisy(n)
        [branch] k = If (c) <
            then_branch = th () => (float[1, 3] p) { p = RandomNormal<shape = [1, 3]>() },
            else_branch = el () => (float[1, 3] q) { q = Neg(x) }
        >
        [plain] l = Add(m, k)
        [last] y = Relu(l)
    }
    <domain: "mine", opset_import: ["" : 17]>
    Noisy (v) => (w) { u = RandomUniformLike(v)  w = Relu(u) }
"""


def test_random_numbers_of_an_onnx_model_are_refused_wherever_they_are_drawn(
    tmp_path: Path,
) -> None:
    message = refused(read(tmp_path, NOISY).graph)
    taken = "it keeps a generator of random numbers"
    names = ("noise", "called", "branch")
    assert [f"model.onnx: layer '{name}': {taken}" for name in names] == message


def test_what_lasts_may_be_on_a_rank_of_its_own_beside_ranks_that_take_turns(
    tmp_path: Path,
) -> None:
    graph = read(tmp_path, NOISY).graph
    entry_of = {"noise": 0, "called": 0, "branch": 0, "plain": 1, "last": 1}
    found = in_turns(partition(graph, entry_of), [(0,), (1, 2)])
    assert [0, 1, 2] == [segment.rank for segment in found.segments]
