"""The process in which TensorFlow converts a SavedModel: ``FOLDER SIGNATURE FILE ANSWER``.

Its signature, or what is wrong with the folder, goes to the file ``ANSWER`` as JSON. Loading a
SavedModel runs the functions that prepare its resources, so its operators are judged before.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from rankslice.framework.engine_process import write_answer
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import joined, listed, quoted
from rankslice.frontend.formats.keras.tensorflow import first_line, tensorflow
from rankslice.frontend.formats.saved_model.folder import GRAPH

_TAG, _DEFAULT = "serve", "serving_default"
_OUTSIDE = re.compile(r"Dataset|Debug|File|PyFunc|^Reader")
"""Operators that reach beyond the model, though TensorFlow registers some as free of effects."""
_WITHIN = re.compile(
    r"Assert|Case|CheckNumerics\w*|CudnnRNN\w*|DeviceIndex|DisableCopyOnRead|Empty|GuaranteeConst"
    r"|If|InitializeTableV2|Multinomial|Random\w+|Resource\w+|RestoreV2|Rng\w+|Stack\w*|Stateful\w+"
    r"|StatelessRandomGetAlg|TensorArray\w*|VarHandleOp|VarIsInitializedOp|While"
    r"|\w*(HashTable|LookupTable|TruncatedNormal|Variable)\w*"
)
"""Operators with effects, all of them on the model's own variables and tables."""
_INITIALIZERS = ("saved_model_main_op", "legacy_init_op")
_NODE, _BODY = "node", "body"
_Vertex: TypeAlias = tuple[str, str]
"""A node of the graph, or the body of one of its functions: which of both, and its name."""
_UNKNOWN = re.compile(r"'tf\.(\w+)' op is neither a custom op nor a flex op")


def _main(folder: str, signature: str, file: str, answer: str) -> None:
    try:
        write_answer(answer, _convert(folder, signature, Path(file)))
    except RankSliceError as error:
        (mistake,) = error.mistakes
        assert isinstance(mistake, Mistake)
        write_answer(answer, {"mistake": [mistake.found, mistake.expected]})


def _convert(folder: str, signature: str, file: Path) -> dict[str, str]:
    tf = tensorflow(folder)
    meta_graph = _meta_graph(folder)
    key = _signature(folder, meta_graph, signature)
    if outside := sorted(set(filter(_reaches_outside, _operators(meta_graph)))):
        found = f"may run code, or reach other files, by {listed(outside)}"
        raise RankSliceError(Mistake(folder, found, "save the model without such operators"))
    try:
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, [key], [_TAG])
        file.write_bytes(converter.convert())
    except Exception as error:  # of many kinds
        if unknown := sorted(set(_UNKNOWN.findall(str(error)))):
            found = f"TensorFlow Lite has no operators for {listed(unknown)}"
            expected = "change the model, or convert it yourself and give the .tflite file"
            raise RankSliceError(Mistake(folder, found, expected)) from None
        found = f"TensorFlow cannot convert it: {first_line(error)}"
        raise RankSliceError(Mistake(folder, found)) from None
    return {"signature": key, "version": tf.__version__}


def _meta_graph(folder: str) -> Any:
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    if len(forms := sorted(path.name for path in Path(folder).glob("saved_model.*"))) > 1:
        found = f"has its graph twice: {joined(forms)}"
        raise RankSliceError(Mistake(folder, found, f"leave {GRAPH} alone there"))
    try:
        meta_graphs = SavedModel.FromString((Path(folder) / GRAPH).read_bytes()).meta_graphs
    except DecodeError:
        found = f"its {GRAPH} is damaged, or something else"
        raise RankSliceError(Mistake(folder, found, "save the model again")) from None
    for meta_graph in meta_graphs:
        if [*meta_graph.meta_info_def.tags] == [_TAG]:
            return meta_graph
    found = f"has no graph with the tag {quoted(_TAG)} alone"
    raise RankSliceError(Mistake(folder, found, "save the model with tf.saved_model.save"))


def _signature(folder: str, meta_graph: Any, wanted: str) -> str:
    known = sorted(key for key in meta_graph.signature_def if not key.startswith("__"))
    key = wanted or (known[0] if len(known) == 1 else _DEFAULT)
    if key in known:
        return key
    if not known:
        raise RankSliceError(
            Mistake(folder, "has no signatures", "save it with tf.saved_model.save(signatures=...)")
        )
    found = f"has no signature {quoted(key)}"
    raise RankSliceError(Mistake(folder, found, f"choose --signature {joined(known, 'or')}"))


def _reaches_outside(operator: str) -> bool:
    from tensorflow.python.framework import op_def_registry

    registered = op_def_registry.get(operator)
    has_effects = registered is not None and registered.is_stateful
    return bool(_OUTSIDE.search(operator) or (has_effects and not _WITHIN.fullmatch(operator)))


def _operators(meta_graph: Any) -> Iterator[str]:
    """Yield all operators but those that only saving the model runs, which nobody does here."""
    graph: dict[_Vertex, tuple[Any, list[_Vertex]]] = {
        (_BODY, item.signature.name): (item.node_def, [])
        for item in meta_graph.graph_def.library.function
    }
    for node in meta_graph.graph_def.node:
        graph[_NODE, node.name] = [node], [*map(_node_of, node.input)]

    def reached(start: Iterable[_Vertex]) -> set[_Vertex]:
        seen: set[_Vertex] = set()
        pending = [*start]
        while pending:
            if (vertex := pending.pop()) in graph and vertex not in seen:
                seen.add(vertex)
                nodes, inputs = graph[vertex]
                pending += [*inputs, *((_BODY, name) for node in nodes for name in _called(node))]
        return seen

    saver, collections = meta_graph.saver_def, meta_graph.collection_def
    tensors = [saver.restore_op_name]
    tensors += [name for key in _INITIALIZERS for name in collections[key].node_list.value]
    for signature in meta_graph.signature_def.values():
        tensors += [tensor.name for tensor in signature.outputs.values()]
    functions = [(_BODY, name) for name in meta_graph.object_graph_def.concrete_functions]
    others = {vertex for vertex in graph if vertex[0] == _BODY}
    others -= reached([_node_of(saver.save_tensor_name)])
    for vertex in reached([*map(_node_of, tensors), *functions]) | others:
        yield from (node.op for node in graph[vertex][0])


def _node_of(tensor: str) -> _Vertex:
    return _NODE, tensor.lstrip("^").partition(":")[0]


def _called(node: Any) -> Iterator[str]:
    """Yield the functions that a node may run; its operator may be one."""
    yield node.op
    for value in node.attr.values():
        yield from (function.name for function in (value.func, *value.list.func))


if __name__ == "__main__":
    _main(*sys.argv[1:])
