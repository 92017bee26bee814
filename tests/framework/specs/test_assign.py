import pytest
from line_graphs import line_graph

from rankslice.framework.errors import RankSliceError
from rankslice.framework.graph import Graph
from rankslice.framework.mapping import Assignment, Block, LayerSplit, Mapping, MappingEntry
from rankslice.framework.specs.assign import assign

GRAPH = line_graph(
    """
    scale: -> s
    conv1: x s -> a
    pool1: a -> b b2
    conv2: b -> c
    fc: c b2 -> y
    """,
    outputs="y",
)


def assigned(ranks: dict[str, list[str]], graph: Graph = GRAPH) -> tuple[tuple[str, ...], ...]:
    return assignment(ranks, graph).layers


def assignment(ranks: dict[str, list[str]], graph: Graph = GRAPH) -> Assignment:
    entries = tuple(MappingEntry(key, tuple(layers)) for key, layers in ranks.items())
    return assign(Mapping("mapping.json", entries), graph)


def mistakes_of(ranks: dict[str, list[str]], graph: Graph = GRAPH) -> list[str]:
    with pytest.raises(RankSliceError) as caught:
        assigned(ranks, graph)
    return str(caught.value).splitlines()


def test_layers_are_named_by_themselves_or_by_their_outputs_and_come_in_the_graphs_order() -> None:
    result = assigned({"a_cpu0": ["fc", "b2", "conv1"], "a_cpu1": ["c"]})
    assert (("conv1", "pool1", "fc"), ("conv2",)) == result


def test_a_range_goes_from_its_first_to_its_last_layer_in_the_graphs_order() -> None:
    expected = (("conv1", "pool1"), ("conv2", "fc"))
    assert expected == assigned({"a_cpu0": ["conv1..pool1"], "a_cpu1": ["c..fc"]})


def test_a_layer_twice_in_one_key_counts_once() -> None:
    result = assigned({"a_cpu0": ["conv1..conv2", "pool1"], "a_cpu1": ["fc"]})
    assert (("conv1", "pool1", "conv2"), ("fc",)) == result


def test_constant_layers_may_stand_in_no_key_in_one_or_in_several() -> None:
    result = assignment({"a_cpu0": ["scale..pool1"], "a_cpu1": ["scale", "conv2..fc"]})
    assert (("scale", "conv1", "pool1"), ("scale", "conv2", "fc")) == result.layers
    assert (0, 1) == (result.entry_of["scale"], result.entry_of["fc"])


def test_an_exact_name_wins_over_a_range() -> None:
    graph = line_graph("a: x -> t\nb: t -> u\na..b: u -> y", outputs="y")
    result = assigned({"a_cpu0": ["a..b"], "a_cpu1": ["a", "b"]}, graph)
    assert (("a..b",), ("a", "b")) == result


def test_the_ends_of_a_range_may_have_dots() -> None:
    graph = line_graph("a.: x -> t\nb: t -> y", outputs="y")
    assert (("a.", "b"),) == assigned({"a_cpu0": ["a...b"]}, graph)


def test_a_range_that_can_be_read_in_two_ways_is_a_mistake() -> None:
    graph = line_graph("a: x -> t\na..b: t -> u\nb..c: u -> v\nc: v -> y", outputs="y")
    assert [
        "mapping.json: a_cpu0[0]: 'a..b..c' can be read as 2 different ranges;"
        " name the layers one by one"
    ] == mistakes_of({"a_cpu0": ["a..b..c"], "a_cpu1": ["a..c"]}, graph)


def test_the_name_of_a_layer_comes_before_that_of_anothers_output() -> None:
    graph = line_graph("p: x -> q\nq: q -> r\nr: r -> y", outputs="y")
    assert (("p", "q"), ("r",)) == assigned({"a_cpu0": ["p..q"], "a_cpu1": ["r"]}, graph)


def test_a_layer_with_the_name_of_its_own_output_is_clear() -> None:
    graph = line_graph("p: x -> p", outputs="p")
    assert (("p",),) == assigned({"a_cpu0": ["p"]}, graph)


def test_all_mistakes_are_told_at_once() -> None:
    mapping = {
        "a_cpu0": ["conv1", "conv3", "pool1..nothing"],
        "a_cpu1": ["conv2..conv1"],
        "a_cpu2": ["conv1", "b"],
        "a_cpu3": ["pool1"],
        "a_cpu4": [],
        "a_cpu5": ["scale"],
    }
    assert [
        "mapping.json: a_cpu1[0]: 'conv2' comes after 'conv1' in model.onnx;"
        " write the earlier layer of a range first",
        "mapping.json: a_cpu0[1]: no layer 'conv3' in model.onnx; did you mean 'conv2'?",
        "mapping.json: a_cpu0[2]: no layer 'nothing' in model.onnx;"
        " `rankslice inspect` lists the layers",
        "mapping.json: a_cpu2[0]: layer 'conv1' is in a_cpu0 too;"
        " keep it in one, or give each of the keys a part of it (AutoDiCE: --horizontal)",
        "mapping.json: a_cpu3[0]: layer 'pool1' is in a_cpu2 too;"
        " keep it in one, or give each of the keys a part of it (AutoDiCE: --horizontal)",
        "mapping.json: a_cpu4: the rank has no layers; give it a layer, or leave the key out",
        "mapping.json: a_cpu5: the rank has no layers but constant ones, which are copied to where"
        " they are needed; give it a layer, or leave the key out",
        "mapping.json: 2 layers of model.onnx are in no key: 'conv2', 'fc';"
        " add what is missing to the lists",
    ] == mistakes_of(mapping)


LONG = line_graph(
    "\n".join(f"n{i}: t{i} -> t{i + 1}" for i in range(42)), outputs="t42", inputs="t0"
)


def test_long_lists_of_missing_layers_are_shortened_but_counted() -> None:
    assert [
        "mapping.json: 41 layers of model.onnx are in no key: 'n1', 'n2', 'n3', 'n4', 'n5',"
        " ... and 36 more; add what is missing to the lists"
    ] == mistakes_of({"a_cpu0": ["n0"]}, LONG)


def test_long_lists_of_layers_in_two_keys_are_shortened_but_counted() -> None:
    assert [
        "mapping.json: a_cpu1[0]: layers 'n1', 'n2', 'n3', 'n4', 'n5', ... and 36 more are in "
        "a_cpu0 too; keep it in one, or give each of the keys a part of it (AutoDiCE: --horizontal)"
    ] == mistakes_of({"a_cpu0": ["n0..n41"], "a_cpu1": ["n1..n41"]}, LONG)


def test_a_mapping_for_another_model_is_told_in_few_lines() -> None:
    lines = mistakes_of({"a_cpu0": ["n0..n41", *(f"other{i}" for i in range(100))]}, LONG)
    assert 21 == len(lines)
    expected = "mapping.json: ... and 80 more names of layers that model.onnx does not have"
    assert expected == lines[-1]


def split_over(*keys: str, layer: str = "conv2") -> tuple[LayerSplit, ...]:
    return (LayerSplit(f"horizontal.json: {layer}", layer, "outputs", (3, 5), keys),)


def assigned_with(splits: tuple[LayerSplit, ...], ranks: dict[str, list[str]]) -> Assignment:
    entries = tuple(MappingEntry(key, tuple(layers)) for key, layers in ranks.items())
    return assign(Mapping("mapping.json", entries, splits), GRAPH)


@pytest.mark.parametrize("first", [["conv1..conv2"], ["conv1", "pool1", "c"], ["conv1..pool1"]])
def test_a_split_layer_is_in_the_keys_of_its_parts_wherever_the_mapping_has_it(first) -> None:
    result = assigned_with(
        split_over("a_cpu1", "a_cpu0", layer="c"), {"a_cpu0": first, "a_cpu1": ["conv2..fc"]}
    )
    assert (("conv1", "pool1"), ("fc",)) == result.layers
    parts = ((1, 3), (0, 5))
    where = "horizontal.json: c"
    assert (Block(where, ("conv2",), "outputs", "recompute", parts, True),) == result.blocks


def test_a_split_layer_may_be_all_that_a_key_has() -> None:
    result = assigned_with(
        split_over("a_cpu0", "a_cpu1"), {"a_cpu0": ["conv1..fc"], "a_cpu1": ["conv2"]}
    )
    assert (("conv1", "pool1", "fc"), ()) == result.layers


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        (
            split_over("a_cpu0", "b_cpu1"),
            "horizontal.json: conv2: mapping.json has no key 'b_cpu1'; did you mean 'a_cpu1'?",
        ),
        (
            split_over("a_cpu0", "a_cpu1", layer="conv3"),
            "horizontal.json: conv3: no layer 'conv3' in model.onnx; did you mean 'conv2'?",
        ),
        (
            split_over("a_cpu0", "a_cpu1", layer="pool1"),
            "horizontal.json: pool1: layer 'pool1' is in a_cpu2 too;",
        ),
    ],
)
def test_a_split_that_does_not_fit_the_mapping_is_a_mistake(splits, expected) -> None:
    ranks = {"a_cpu0": ["conv1"], "a_cpu1": ["conv2"], "a_cpu2": ["pool1", "fc"]}
    with pytest.raises(RankSliceError) as caught:
        assigned_with(splits, ranks)
    assert expected in str(caught.value)
