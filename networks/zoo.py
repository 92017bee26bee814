"""Networks of real size without a download: the nine of the ``onnx`` wheel, with weights drawn.

The wheel carries the graphs of nine image classifiers, most of their weights replaced by
constants to keep the files small. Here each gets seeded random weights of the true shapes
(:mod:`rankslice.networks.calibration`). Such a network costs what the trained one costs, and
its numbers behave like the trained one's: no overflow, no dead channel, and an answer that is
neither certain nor the same for every frame. What it answers means nothing.

Frames should be of order one too: standardised pixels, or noise of unit variance.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from rankslice.framework.errors import Mistake, RankSliceError, nearest
from rankslice.framework.files.ordinary_file import home_folder
from rankslice.framework.files.output_file import whole_file
from rankslice.networks.calibration import fill_weights

RECIPE = 2
"""Version of the weights, part of the file names: raise it whenever they change."""


@dataclass(frozen=True, slots=True)
class LightModel:
    """A network of the ``onnx`` wheel, and how its weights are drawn."""

    file: str
    """Its file among the wheel's backend test data."""
    spread: float
    """Standard deviation of what its last layer with weights gives."""
    seed: int
    """One with which noise, uniform or normal, and photographs all get uncertain answers."""


# Means over all positions make a network's last features nearly the same for frames of one kind,
# so frames of another kind stand far out: less spread there keeps their answers uncertain.
# SqueezeNet takes such a mean after its last convolution, which evens out the answers instead.
NETWORKS = {
    "alexnet": LightModel("light_bvlc_alexnet.onnx", spread=1.0, seed=1),
    "densenet121": LightModel("light_densenet121.onnx", spread=0.5, seed=5),
    "inception_v1": LightModel("light_inception_v1.onnx", spread=0.5, seed=2),
    "inception_v2": LightModel("light_inception_v2.onnx", spread=0.5, seed=6),
    "resnet50": LightModel("light_resnet50.onnx", spread=0.5, seed=2),
    "shufflenet": LightModel("light_shufflenet.onnx", spread=0.5, seed=1),
    "squeezenet": LightModel("light_squeezenet.onnx", spread=6.0, seed=4),
    "vgg19": LightModel("light_vgg19.onnx", spread=1.0, seed=1),
    "zfnet512": LightModel("light_zfnet512.onnx", spread=1.0, seed=1),
}


def cache_folder() -> Path:
    """Return the folder for files that can be made again; it need not exist.

    ``RANKSLICE_CACHE`` names it; otherwise it is ``rankslice`` in the user's cache folder
    (``XDG_CACHE_HOME``, or ``~/.cache``).
    """
    own = os.environ.get("RANKSLICE_CACHE")
    if own:
        return Path(own)
    general = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not general.is_absolute():
        general = home_folder("set HOME, or RANKSLICE_CACHE") / ".cache"
    return general / "rankslice"


def zoo_names() -> tuple[str, ...]:
    """Return the names of the networks, sorted."""
    return tuple(sorted(NETWORKS))


def zoo_model(name: str, folder: Path | None = None) -> Path:
    """Return the file of the network ``name`` with weights, made now unless it is there already.

    Layers, names, operator set and outputs are those of the wheel's file. The weights are
    initialisers, listed as graph inputs too, as the file's version (IR 3) demands. The same
    machine makes the same bytes. The file appears complete or not at all, also when several
    processes ask for it at once.

    Args:
        name: One of :func:`zoo_names`.
        folder: Where the file lies, made if needed; :func:`cache_folder` unless given.

    Raises:
        RankSliceError: There is no such network, or the installed ``onnx`` lacks its graph.
    """
    network = _network(name)
    target = (folder or cache_folder()) / f"{name}-r{RECIPE}.onnx"
    if not target.exists():
        model = _without_generators(_light_model(network))
        fill_weights(model, network.spread, network.seed)
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as file:
            file.write(model.SerializeToString())
    return target


def _network(name: str) -> LightModel:
    if name not in NETWORKS:
        known = nearest(name, NETWORKS) or f"expected one of {', '.join(zoo_names())}"
        raise RankSliceError(Mistake("zoo", f"no network {name!r}", known))
    return NETWORKS[name]


def _light_model(network: LightModel) -> ModelProto:
    resource = files("onnx") / "backend" / "test" / "data" / "light" / network.file
    if not resource.is_file():
        where = f"onnx {onnx.__version__}"
        raise RankSliceError(Mistake(where, f"no {network.file}", "install onnx from its wheel"))
    return onnx.load_model_from_string(resource.read_bytes())


def _without_generators(model: ModelProto) -> ModelProto:
    """Return the model with the layers that generate weights replaced by initialisers.

    These have types and shapes, and no values yet. Initialisers that no layer reads are left
    out: onnxruntime warns of them.
    """
    graph = model.graph
    layers = [node for node in graph.node if not _generates(node)]
    weight_of = {node.input[0]: node.output[0] for node in graph.node if _generates(node)}
    read = {name for node in layers for name in node.input}
    weights = [
        _weight_of_shape(weight_of[tensor.name], tensor) if tensor.name in weight_of else tensor
        for tensor in graph.initializer
        if weight_of.get(tensor.name, tensor.name) in read
    ]
    listed = {tensor.name for tensor in graph.initializer}
    inputs = [entry for entry in graph.input if entry.name not in listed]
    inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in weights]
    lifted = ModelProto()
    lifted.CopyFrom(model)
    lifted.graph.CopyFrom(
        helper.make_graph(layers, graph.name, inputs, list(graph.output), weights)
    )
    return lifted


def _generates(node: NodeProto) -> bool:
    return str(node.op_type) == "ConstantOfShape"


def _weight_of_shape(name: str, shape: TensorProto) -> TensorProto:
    sizes = numpy_helper.to_array(shape).tolist()
    return TensorProto(name=name, data_type=TensorProto.FLOAT, dims=sizes)
