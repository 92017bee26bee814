from line_graphs import line_graph

from rankslice.framework.graph import constant_layers


def test_a_layer_that_reads_weights_alone_is_constant() -> None:
    graph = line_graph("k: -> a\nadd: x a -> y", outputs="y")
    assert frozenset({"k"}) == constant_layers(graph)


def test_a_layer_that_reads_constant_layers_alone_is_constant() -> None:
    graph = line_graph("k: -> a\ndouble: a -> b\nadd: x b -> y", outputs="y")
    assert frozenset({"k", "double"}) == constant_layers(graph)


def test_a_layer_that_draws_random_numbers_is_not_constant() -> None:
    graph = line_graph("noise!: -> a\nadd: x a -> y", outputs="y")
    assert frozenset() == constant_layers(graph)


def test_a_layer_that_makes_a_model_output_is_not_constant_but_its_ancestors_are() -> None:
    graph = line_graph("k: -> a\nout: a -> b\nadd: x a -> y", outputs="y b")
    assert frozenset({"k"}) == constant_layers(graph)


def test_a_layer_that_reads_a_model_output_is_not_constant() -> None:
    graph = line_graph("out: -> a\ndouble: a -> b\nadd: x b -> y", outputs="y a")
    assert frozenset() == constant_layers(graph)
