"""The calls of which a Keras model consists, and what they give when they are done again.

A layer of Keras is like a function: it may be called several times, and each call is a node of
the model. Models that are called inside of a model are taken apart, so that cuts can go through
them. A slice is some of the calls, done again, one by one, with other tensors: those of a
TensorFlow function, to learn their sizes and to convert it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of a layer, or of an operation such as ``x + y``."""

    name: str
    """The layer's name; ``dense:1`` for its second call; ``base/dense`` inside of a model."""
    operation: Any
    """The layer or operation: called, it does the same again."""
    arguments: Any
    """What it was called with: ``args`` and ``kwargs``, in which stand symbolic tensors."""
    reads: Mapping[int, str]
    """Names of these tensors, by their ``id``."""
    makes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallGraph:
    """A Keras model as calls."""

    inputs: tuple[tuple[str, Any], ...]
    calls: tuple[Call, ...]
    """In a topological order; in that of ``model.layers`` unless layers are shared or nested."""
    outputs: tuple[str, ...]
    """Names of tensors, once each."""


def call_graph_of(model: Any) -> CallGraph:
    graph = _graph_of(model)
    inputs = [(tensor._keras_history.operation.name, tensor) for tensor in graph.inputs]
    names = {id(tensor): name for name, tensor in inputs}
    taken = {name for name, _ in inputs}
    calls = tuple(_calls(graph, "", names, taken))
    outputs = dict.fromkeys(names[id(tensor)] for tensor in graph.outputs)
    return CallGraph(tuple(inputs), calls, tuple(outputs))


def replay(calls: Iterable[Call], values: Mapping[str, Any]) -> dict[str, Any]:
    """Do calls again with other tensors; return these and the results, by name.

    Args:
        values: tensors that they read and do not make themselves, of whatever kind Keras takes.
    """
    from keras import tree

    known = dict(values)
    for call in calls:
        symbols = {number: known[name] for number, name in call.reads.items()}
        arguments = (call.arguments.args, call.arguments.kwargs)
        args, kwargs = tree.map_structure(partial(_replaced, symbols), arguments)
        # Without the argument for inference, some layers assume training.
        has_training = getattr(call.operation, "_call_has_training_arg", False)
        mode = {"training": False} if has_training else {}
        made = tree.flatten(call.operation(*args, **(kwargs | mode)))
        known |= zip(call.makes, made, strict=True)
    return known


def function_of(
    calls: Sequence[Call],
    inputs: Mapping[str, tuple[Sequence[int | None], str]],
    results: Callable[[dict[str, Any]], Any],
) -> Any:
    """Return calls as a TensorFlow function of tensors, with the weights of their layers in it.

    Args:
        inputs: shapes and dtypes of the tensors that they read and do not make, by name.
        results: takes the tensors of the function, by name, and returns those that it gives.
    """
    import keras
    import tensorflow as tf

    # A name such as "-dense" must not be that of an outermost scope.
    has_odd_names = any(not call.name[0].isalnum() for call in calls)

    def compute(*arrays: Any) -> Any:
        # Layers that only act in training may advance their random generators all the same, which
        # cannot be converted.
        scope = tf.name_scope("slice") if has_odd_names else nullcontext()
        with scope, keras.StatelessScope():
            return results(replay(calls, dict(zip(inputs, arrays, strict=True))))

    signature = [
        tf.TensorSpec(shape, dtype, name=f"input_{number}")
        for number, (shape, dtype) in enumerate(inputs.values())
    ]
    function = tf.function(compute, input_signature=signature, autograph=False)
    return function.get_concrete_function()


def _replaced(tensors: Mapping[int, Any], item: Any) -> Any:
    return tensors.get(id(item), item)


def _graph_of(operation: Any) -> Any:
    graph = getattr(operation, "_functional", None) or operation
    return graph if hasattr(graph, "_nodes_by_depth") else None


def _calls(graph: Any, prefix: str, names: dict[int, str], taken: set[str]) -> Iterator[Call]:
    """Yield the calls of a graph whose inputs have names; give names to all that they make."""
    times: Counter[str] = Counter()
    for node in _nodes(graph):
        layer = f"{prefix}{node.operation.name}"
        name = _unused(layer, times, taken)
        inside = _graph_of(node.operation)
        if inside is not None and _can_be_taken_apart(node, inside):
            tensors = _tensors(node.arguments.args)
            inner = {
                id(own): names[id(tensor)]
                for own, tensor in zip(_tensors(inside._inputs_struct), tensors, strict=True)
            }
            yield from _calls(inside, f"{name}/", inner, taken)
            names |= {
                id(tensor): inner[id(own)]
                for own, tensor in zip(inside.outputs, node.outputs, strict=True)
            }
            continue
        makes = (
            (name,)
            if len(node.outputs) == 1
            else tuple(f"{name}.{n}" for n in range(len(node.outputs)))
        )
        reads = {id(tensor): names[id(tensor)] for tensor in node.input_tensors}
        names |= {id(tensor): made for tensor, made in zip(node.outputs, makes, strict=True)}
        taken |= {name, *makes}
        yield Call(name, node.operation, node.arguments, reads, makes)


def _unused(layer: str, times: Counter[str], taken: set[str]) -> str:
    while True:
        number = times[layer]
        times[layer] += 1
        name = f"{layer}:{number}" if number else layer
        if name not in taken:
            return name


def _nodes(graph: Any) -> Iterator[Any]:
    """Yield the calls in the order in which Keras does them, without those of inputs."""
    for depth in sorted(graph._nodes_by_depth, reverse=True):
        for node in graph._nodes_by_depth[depth]:
            if not node.is_input:
                yield node


def _tensors(structure: Any) -> list[Any]:
    from keras import tree

    tensors: list[Any] = tree.flatten(structure)
    return tensors


def _can_be_taken_apart(node: Any, graph: Any) -> bool:
    if len(node.arguments.args) != 1 or any(value for value in node.arguments.kwargs.values()):
        return False
    (argument,) = node.arguments.args
    own, brought = _tensors(graph._inputs_struct), _tensors(argument)
    if len(own) != len(brought) or isinstance(argument, dict) != isinstance(
        graph._inputs_struct, dict
    ):
        return False
    if isinstance(argument, dict) and set(argument) != set(graph._inputs_struct):
        return False
    # A model casts what it is given, and may add a dimension: what is in it does not.
    return all(
        hasattr(tensor, "_keras_history")
        and (mine.dtype, len(mine.shape)) == (tensor.dtype, len(tensor.shape))
        for mine, tensor in zip(own, brought, strict=True)
    )
