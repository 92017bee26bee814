"""Random weights for a convolutional network that keep its activations of order one.

Layer by layer, weights are drawn and scaled by what a few frames make of them (layer-sequential
unit variance: Mishkin and Matas, "All you need is a good init", ICLR 2016). Each channel also
gets its mean taken away, so that rectifiers neither silence a channel nor let the frames become
more and more alike on their way through the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime

Array = NDArray[np.float32]
Frame = dict[str, Array]
"""The activations of one frame that later layers still read, by tensor name."""

CELLS = ((1,), (1, 4, 16, 56), (16, 56, 224), (1, 224))
"""One calibration frame each: the sizes in pixels of its squares of one colour. Together they
are as fine, as coarse and as bright as noise and photographs are."""

LIFT = 0.7
"""Mean of the channels' means. With 0, half of all values pass a rectifier, and what is then
centred anew differs from a run with another rounding by a fifth more than before, layer after
layer (by sqrt(pi / (pi - 1)): Yang et al., "A Mean Field Theory of Batch Normalization", ICLR
2019); with 0.7 it is a tenth. Trained networks do not amplify rounding either."""

SHIFT = 0.3
"""Standard deviation of the channels' means: enough to tell the channels apart, too little to
silence one behind a rectifier."""

WOBBLE = 0.1
"""Standard deviation of the scales around one."""

ENOUGH = 16
"""Positions, all frames together, from which a channel's own deviation is estimated."""


def fill_weights(model: ModelProto, spread: float, seed: int) -> None:
    """Draw all weights of ``model``, in place (they may be large, so there is no copy).

    Args:
        model: A chain or graph of convolutions, fully connected layers, normalisations, channel
            scales and shifts, and layers without weights, for one image a frame. Its float
            initialisers need types and shapes; values that they have are replaced.
        spread: Standard deviation of what the last layer with weights gives; 1 for the others.
        seed: Of the weights and the calibration frames. On one machine the weights depend on
            nothing else; elsewhere they may differ by rounding.
    """
    random = np.random.Generator(np.random.SFC64(seed))
    steps = tuple(_steps(model.graph))
    last_use = {name: step for step in steps for name in step.layer.input}
    last_projection = [step for step in steps if step.projects][-1]
    name, shape = _input(model.graph)
    frames = [{name: _frame(shape, cells, random)} for cells in CELLS]
    for step in steps:
        run = _session(step, model.opset_import)
        if step.projects:
            deviation = spread if step is last_projection else 1.0
            values, outputs = _projection(step, frames, run, random, deviation)
        else:
            values = _DRAWS[step.layer.op_type](step, frames, random) if step.weights else []
            outputs = run(frames, values)
        for tensor, value in zip(step.weights, values, strict=True):
            tensor.ClearField("float_data")
            tensor.raw_data = value.tobytes()
        for frame, output in zip(frames, outputs, strict=True):
            frame[step.layer.output[0]] = output
            for spent in {name for name in step.layer.input if last_use[name] is step}:
                frame.pop(spent, None)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A layer, together with the layers that only reshape its weights."""

    nodes: tuple[NodeProto, ...]
    """The layer comes last."""
    weights: tuple[TensorProto, ...]
    """Float initialisers, in the order in which the layer takes them."""
    constants: tuple[TensorProto, ...]
    """The other initialisers: shapes."""

    @property
    def layer(self) -> NodeProto:
        """The layer itself."""
        return self.nodes[-1]

    @property
    def projects(self) -> bool:
        """Whether it multiplies by a matrix of weights: convolution or fully connected."""
        return self.layer.op_type in ("Conv", "Gemm") and bool(self.weights)


Run = Callable[[Sequence[Frame], Sequence[Array]], list[Array]]
"""Takes the frames and the step's weights, gives the layer's first output for each frame."""


def _steps(graph: GraphProto) -> Iterator[Step]:
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    reshapes: dict[str, NodeProto] = {}
    for node in graph.node:
        if all(name in tensors or name in reshapes for name in node.input):
            reshapes[node.output[0]] = node
            continue
        before = tuple(reshapes[name] for name in node.input if name in reshapes)
        origins = [reshapes[name].input if name in reshapes else [name] for name in node.input]
        read = [tensors[name] for names in origins for name in names if name in tensors]
        yield Step(
            nodes=(*before, node),
            weights=tuple(t for t in read if t.data_type == TensorProto.FLOAT),
            constants=tuple(t for t in read if t.data_type != TensorProto.FLOAT),
        )


def _input(graph: GraphProto) -> tuple[str, tuple[int, ...]]:
    weights = {tensor.name for tensor in graph.initializer}
    (entry,) = (entry for entry in graph.input if entry.name not in weights)
    return entry.name, tuple(size.dim_value for size in entry.type.tensor_type.shape.dim)


def _frame(shape: Sequence[int], cells: Sequence[int], random: np.random.Generator) -> Array:
    """Return squares of random colours, a layer of them for each size, of mean square one."""
    batch, channels, height, width = shape
    frame = np.zeros(shape, np.float32)
    for cell in cells:
        colours = (batch, channels, -(-height // cell), -(-width // cell))
        coarse = random.standard_normal(colours, dtype=np.float32)
        fine = coarse.repeat(cell, axis=2).repeat(cell, axis=3)
        frame += fine[:, :, :height, :width]
    frame /= np.sqrt(np.mean(frame**2))
    return frame


def _session(step: Step, opsets: Sequence[OperatorSetIdProto]) -> Run:
    """Return a function that runs the step alone: weights are inputs, so none is copied."""
    onnxruntime = load_onnxruntime()
    weights = [tensor.name for tensor in step.weights]
    constants = {tensor.name for tensor in step.constants}
    made = {name for node in step.nodes for name in node.output}
    activations = sorted(set(step.layer.input) - made - constants - set(weights))
    output = step.layer.output[0]
    graph = helper.make_graph(
        step.nodes,
        "step",
        [_any_shape(name) for name in (*activations, *weights)],
        [_any_shape(output)],
        step.constants,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the order of sums, and so the weights, depend on it
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(frames: Sequence[Frame], values: Sequence[Array]) -> list[Array]:
        named = dict(zip(weights, values, strict=True))
        feeds = ({name: frame[name] for name in activations} | named for frame in frames)
        return [session.run([output], feed)[0] for feed in feeds]

    return run


def _any_shape(name: str) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def _moments(activations: Sequence[Array]) -> tuple[Array, Array]:
    """Return each channel's mean and standard deviation over positions and frames."""
    channels = activations[0].shape[1]
    values = np.concatenate(
        [activation.reshape(channels, -1) for activation in activations], axis=1
    )
    mean = values.mean(axis=1, dtype=np.float64)
    values -= mean[:, None]
    square = np.mean(values**2, axis=1, dtype=np.float64)
    if values.shape[1] < ENOUGH:
        square = np.full(channels, square.mean())
    return mean.astype(np.float32), np.sqrt(square).astype(np.float32)


def _projection(
    step: Step, frames: Sequence[Frame], run: Run, random: np.random.Generator, deviation: float
) -> tuple[list[Array], list[Array]]:
    """Return weights (and biases, if it has them), and what the step makes of the frames.

    The layer is linear, so its outputs follow the scaling and need no second run.
    """
    weight = random.standard_normal(tuple(step.weights[0].dims), dtype=np.float32)
    biases = [np.zeros(tuple(tensor.dims), np.float32) for tensor in step.weights[1:]]
    outputs = run(frames, [weight, *biases])
    mean, raw_deviation = _moments(outputs)
    gain = deviation / raw_deviation
    by_channel = weight.reshape(len(gain), -1)
    by_channel *= gain[:, None]
    shifts = [_shift(tensor, random) - mean * gain for tensor in step.weights[1:]]
    axes = (-1,) + (1,) * (outputs[0].ndim - 2)
    for output in outputs:
        output *= gain.reshape(axes)
        for shift in shifts:
            output += shift.reshape(axes)
    return [weight, *shifts], outputs


def _normalisation(step: Step, frames: Sequence[Frame], random: np.random.Generator) -> list[Array]:
    scale, bias, _, _ = step.weights
    mean, deviation = _moments([frame[step.layer.input[0]] for frame in frames])
    return [_scale(scale, random), _shift(bias, random), mean, deviation**2]


def _channel_scale(step: Step, frames: Sequence[Frame], random: np.random.Generator) -> list[Array]:
    return [_scale(tensor, random) for tensor in step.weights]


def _channel_shift(step: Step, frames: Sequence[Frame], random: np.random.Generator) -> list[Array]:
    return [_shift(tensor, random) for tensor in step.weights]


def _scale(tensor: TensorProto, random: np.random.Generator) -> Array:
    return 1 + WOBBLE * random.standard_normal(tuple(tensor.dims), dtype=np.float32)


def _shift(tensor: TensorProto, random: np.random.Generator) -> Array:
    return np.float32(LIFT) + SHIFT * random.standard_normal(tuple(tensor.dims), np.float32)


_DRAWS = {
    "BatchNormalization": _normalisation,
    "Mul": _channel_scale,
    "Add": _channel_shift,
}
"""How the weights of a layer that does not project are drawn."""
