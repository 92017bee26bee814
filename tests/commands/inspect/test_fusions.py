"""Which layers the nodes of an optimised graph are told to stand for."""

from __future__ import annotations

from rankslice.commands.inspect.fusions import Node, Stage, groups_of
from rankslice.commands.inspect.optimised_process import with_parts

NCHWC = "com.microsoft.nchwc."


def node(name: str, op: str, reads: str, makes: str, digest: str = "") -> Node:
    return Node(name, op, tuple(reads.split()), tuple(makes.split()), digest)


def found(*stages: Stage) -> set[tuple[str, str, str]]:
    """Return each group: its kind, names of layers, names of nodes."""
    return {
        (
            group.kind,
            " ".join(stages[0].nodes[index].name for index in group.before),
            " ".join(stages[-1].nodes[index].name for index in group.after),
        )
        for group in groups_of(stages)
    }


def stage(*nodes: Node, weights: str = "") -> Stage:
    return Stage("", nodes, tuple(weights.split()))


CONV = stage(
    node("conv", "Conv", "x w", "a"),
    node("bn", "BatchNormalization", "a scale", "b"),
    node("relu", "Relu", "b", "y"),
    weights="w scale",
)


def test_layers_whose_tensors_are_gone_belong_to_the_node_that_makes_the_next_one():
    fused = stage(node("conv", "FusedConv", "x folded", "y"), weights="folded")
    assert {("fused", "conv bn relu", "conv")} == found(CONV, fused)


def test_a_tensor_that_is_still_there_separates_two_nodes():
    fused = stage(node("conv", "Conv", "x v", "b"), node("other", "Clip", "b", "y"), weights="v")
    assert {("fused", "conv bn", "conv"), ("replaced", "relu", "other")} == found(CONV, fused)


def test_what_fuses_in_several_stages_is_one_group():
    half = stage(node("conv", "Conv", "x v", "b"), node("relu", "Relu", "b", "y"), weights="v")
    whole = stage(node("fused", "FusedConv", "x v", "y"), weights="v")
    assert {("fused", "conv bn relu", "fused")} == found(CONV, half, whole)


def test_nodes_that_change_the_layout_are_added_and_hide_nothing():
    laid = stage(
        node("in", f"{NCHWC}ReorderInput", "x", "r0"),
        node("a_nchwc", f"{NCHWC}Conv", "r0 v", "r1"),
        node("out", f"{NCHWC}ReorderOutput", "r1", "y"),
        weights="v",
    )
    groups = {("added", "", "in"), ("added", "", "out"), ("fused", "conv bn relu", "a_nchwc")}
    assert groups == found(CONV, laid)


def test_an_addition_belongs_to_the_convolution_that_takes_it_over():
    before = stage(
        node("left", "Conv", "x w", "a"),
        node("right", "Conv", "x v", "b"),
        node("add", "Add", "a b", "c"),
        node("relu", "Relu", "c", "d"),
        node("next", "Conv", "d u", "y"),
        weights="u v w",
    )
    after = stage(
        node("b_nchwc", f"{NCHWC}Conv", "x v", "r0"),
        node("a_nchwc", f"{NCHWC}Conv", "x w r0", "r1"),
        node("y_nchwc", f"{NCHWC}Conv", "r1 u", "r2"),
        node("out", f"{NCHWC}ReorderOutput", "r2", "y"),
        weights="u v w",
    )
    assert {
        ("replaced", "right", "b_nchwc"),
        ("fused", "left add relu", "a_nchwc"),
        ("replaced", "next", "y_nchwc"),
        ("added", "", "out"),
    } == found(before, after)


def test_constants_are_folded_and_what_changes_nothing_is_dropped():
    before = stage(
        node("const", "Constant", "", "c"),
        node("flat", "Unsqueeze", "w", "v"),
        node("same", "Identity", "x", "a", "i"),
        node("mul", "Mul", "a v", "b", "m"),
        node("add", "Add", "b c", "y", "n"),
        weights="w",
    )
    after = stage(
        node("mul", "Mul", "x v", "b", "m"), node("add", "Add", "b c", "y", "n"), weights="v c"
    )
    assert {
        ("stored", "const", ""),
        ("folded", "flat", ""),
        ("dropped", "same", ""),
        ("kept", "mul", "mul"),
        ("kept", "add", "add"),
    } == found(before, after)


def test_a_layer_may_become_several_nodes():
    before = stage(node("gemm", "Gemm", "x w b", "y"), weights="w b")
    after = stage(
        node("m", "MatMul", "x w", "inner"), node("n", "Add", "inner b", "y"), weights="w b"
    )
    assert {("split", "gemm", "m n")} == found(before, after)


def test_a_quantised_operator_takes_over_what_is_around_it():
    before = stage(
        node("dw", "DequantizeLinear", "w", "wf"),
        node("dx", "DequantizeLinear", "x", "xf"),
        node("conv", "Conv", "xf wf", "a"),
        node("q", "QuantizeLinear", "a", "y"),
        weights="w",
    )
    after = stage(node("conv_quant", "QLinearConv", "x w", "y"), weights="w")
    assert {("fused", "dw dx conv q", "conv_quant")} == found(before, after)


def test_each_layer_and_each_node_is_in_one_group_also_without_names():
    before = stage(*(node("", "Relu", f"t{i}", f"t{i + 1}") for i in range(5)))
    after = stage(
        node("", "Relu", "t0", "u"), node("", "Relu", "u", "t4"), node("", "Elu", "", "z")
    )
    groups = groups_of((before, after))
    assert list(range(5)) == sorted(index for group in groups for index in group.before)
    assert list(range(3)) == sorted(index for group in groups for index in group.after)


def test_layers_that_only_feed_folded_ones_are_folded():
    before = stage(
        node("shape", "Shape", "x", "s"),
        node("take", "Gather", "s i", "t"),
        node("reshape", "Reshape", "x t", "y", "r"),
        weights="i",
    )
    after = stage(node("reshape", "Reshape", "x t", "y", "r"), weights="t")
    groups = {("folded", "shape", ""), ("folded", "take", ""), ("kept", "reshape", "reshape")}
    assert groups == found(before, after)


def test_a_long_chain_that_is_dropped_takes_no_deep_stack():
    count = 5000
    chain = [node(f"n{i}", "Identity", f"t{i}", f"t{i + 1}") for i in range(count)]
    last = node("relu", "Relu", f"t{count}", "y", "r")
    groups = groups_of((stage(*chain, last), stage(node("relu", "Relu", "t0", "y", "r"))))
    assert ["kept", *["dropped"] * count] == [group.kind for group in groups]


def test_what_a_provider_compiles_is_one_node_for_each_part():
    before = stage(
        node("a", "Relu", "x", "p"),
        node("b", "Relu", "p", "q"),
        node("c", "Loop", "q", "r"),
        node("d", "Relu", "r", "y"),
    )
    after = with_parts(before, [frozenset("ab"), frozenset("d")], "NPU")
    assert ["NPU", "Loop", "NPU"] == [each.op for each in after.nodes]
    assert {("fused", "a b", ""), ("kept", "c", "c"), ("replaced", "d", "")} == found(before, after)
