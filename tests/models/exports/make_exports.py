"""Make the ``.onnx`` files of this folder: small networks as today's exporters write them.

The files are committed, so tests need none of the exporters. To make them anew, use environments
of their own, since the exporters are large::

    pip install torch==2.13.0 transformers onnxscript onnx
    python tests/models/exports/make_exports.py torch

    pip install tensorflow-cpu tf2onnx onnx
    python tests/models/exports/make_exports.py tensorflow

Nothing is downloaded: networks are made from configurations, with seeded random weights that are
scaled so that activations are of order 1 and outputs are not saturated. Transformers leave the
size of the batch open. The stack traces that PyTorch writes into its files are removed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TORCH_NETWORKS = ("cnn", "bert", "gpt2", "vit")
EXPORTERS = ("dynamo", "torchscript")


@dataclass(frozen=True)
class Sizes:
    """How large the transformers are; image and patch are widths in pixels."""

    layers: int = 2
    hidden: int = 32
    heads: int = 4
    inner: int = 2
    """How many times wider the inner layer of a block is."""
    vocabulary: int = 48
    tokens: int = 16
    patch: int = 4
    image: int = 32


TINY = Sizes()
BASE = Sizes(
    layers=12, hidden=768, heads=12, inner=4, vocabulary=30522, tokens=128, patch=16, image=224
)
"""The size of BERT-base, GPT-2 and ViT-base."""


@dataclass(frozen=True)
class Network:
    """A PyTorch module and what it is called with."""

    module: Any
    inputs: tuple[Any, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]


def torch_network(name: str, sizes: Sizes) -> Network:
    """Return one of :data:`TORCH_NETWORKS` with seeded weights."""
    import torch

    torch.manual_seed(0)
    makers: dict[str, Callable[[Sizes], Network]] = {
        "cnn": _cnn,
        "bert": _bert,
        "gpt2": _gpt2,
        "vit": _vit,
    }
    network = makers[name](sizes)
    network.module.eval()
    return network


def _cnn(sizes: Sizes) -> Network:
    """Return a convolutional network with a skip connection and two outputs."""
    import torch
    from torch import nn

    class Cnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
            self.left = nn.Conv2d(8, 8, 3, padding=1)
            self.right = nn.Conv2d(8, 8, 1)
            self.pool = nn.MaxPool2d(2)
            self.head = nn.Linear(8 * 8 * 8, 10)

        def forward(self, image: Any) -> tuple[Any, Any]:
            stem = self.stem(image)
            joined = torch.relu(self.left(stem) + self.right(stem))
            pooled = self.pool(torch.cat([joined[:, :4], stem[:, 4:]], dim=1))
            return self.head(pooled.flatten(1)), pooled.mean(dim=(2, 3))

    return Network(Cnn(), (torch.randn(1, 3, 16, 16),), ("image",), ("scores", "means"))


def _bert(sizes: Sizes) -> Network:
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.inner * sizes.hidden,
        max_position_embeddings=max(64, sizes.tokens),
        initializer_range=0.2 if sizes == TINY else 0.04,
    )
    tokens = torch.randint(0, sizes.vocabulary, (1, sizes.tokens))
    mask = torch.ones(1, sizes.tokens, dtype=torch.int64)
    return Network(
        _returning(BertModel(config), ("last_hidden_state", "pooler_output")),
        (tokens, mask),
        ("input_ids", "attention_mask"),
        ("last_hidden_state", "pooler_output"),
    )


def _gpt2(sizes: Sizes) -> Network:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=sizes.vocabulary,
        n_embd=sizes.hidden,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        n_inner=sizes.inner * sizes.hidden,
        n_positions=max(64, sizes.tokens),
        initializer_range=0.2 if sizes == TINY else 0.04,
        use_cache=False,
    )
    tokens = torch.randint(0, sizes.vocabulary, (1, sizes.tokens))
    mask = torch.ones(1, sizes.tokens, dtype=torch.int64)  # lacking one, TorchScript cannot export
    return Network(
        _returning(GPT2LMHeadModel(config), ("logits",)),
        (tokens, mask),
        ("input_ids", "attention_mask"),
        ("logits",),
    )


def _vit(sizes: Sizes) -> Network:
    import torch
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        image_size=sizes.image,
        patch_size=sizes.patch,
        hidden_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.inner * sizes.hidden,
        initializer_range=0.2 if sizes == TINY else 0.04,
    )
    return Network(
        _returning(ViTModel(config), ("last_hidden_state", "pooler_output")),
        (torch.randn(1, 3, sizes.image, sizes.image),),
        ("pixel_values",),
        ("last_hidden_state", "pooler_output"),
    )


def _returning(model: Any, outputs: tuple[str, ...]) -> Any:
    """Return a module that calls ``model`` by position and gives plain tensors."""
    from torch import nn

    class Returning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, first: Any, second: Any = None) -> Any:
            result = self.model(first, **({} if second is None else {"attention_mask": second}))
            values = tuple(getattr(result, name) for name in outputs)
            return values[0] if len(values) == 1 else values

    return Returning()


def export_torch(network: Network, path: Path, exporter: str, *, open_batch: bool = False) -> None:
    """Write the network with ``torch.onnx.export``.

    Args:
        network: what to export.
        path: the file.
        exporter: ``dynamo`` or ``torchscript``.
        open_batch: leave the first size of each input open.
    """
    import torch

    names = {
        "input_names": list(network.input_names),
        "output_names": list(network.output_names),
    }
    if exporter == "dynamo":
        dims = tuple({0: torch.export.Dim("batch")} for _ in network.inputs) if open_batch else None
        torch.onnx.export(
            network.module,
            network.inputs,
            path,
            dynamo=True,
            external_data=False,
            dynamic_shapes=dims,
            **names,
        )
    else:
        axes = {name: {0: "batch"} for name in network.input_names} if open_batch else None
        torch.onnx.export(
            network.module,
            network.inputs,
            path,
            dynamo=False,
            opset_version=17,
            dynamic_axes=axes,
            **names,
        )


def drop_stack_traces(path: Path) -> None:
    """Remove the stack traces that PyTorch adds to each node: they name files of one machine."""
    import onnx

    model = onnx.load(path)
    graph = model.graph
    for record in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
        for index in reversed(range(len(record.metadata_props))):
            if "trace" in record.metadata_props[index].key:
                del record.metadata_props[index]
    onnx.save(model, path)


def export_tensorflow(path: Path) -> None:
    """Write a small Keras network with tf2onnx, by way of a concrete function."""
    import tensorflow
    import tf2onnx

    tensorflow.keras.utils.set_random_seed(0)
    layers = tensorflow.keras.layers
    image = layers.Input((16, 16, 3), batch_size=1, name="image")
    stem = layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    wide = layers.DepthwiseConv2D(3, padding="same")(stem)
    wide = layers.BatchNormalization()(wide)
    joined = layers.Activation("relu")(layers.Add()([stem, wide]))
    pooled = layers.MaxPooling2D()(joined)
    pooled = layers.Conv2D(16, 3, strides=2, padding="same")(pooled)
    scores = layers.Dense(10)(layers.GlobalAveragePooling2D()(pooled))
    model = tensorflow.keras.Model(image, scores)
    signature = (tensorflow.TensorSpec((1, 16, 16, 3), tensorflow.float32, name="image"),)
    tf2onnx.convert.from_function(
        tensorflow.function(lambda image: model(image, training=False)),
        input_signature=signature,
        opset=17,
        output_path=str(path),
    )


def main() -> None:
    """Write the files that the installed packages can make."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("framework", choices=("torch", "tensorflow"))
    if parser.parse_args().framework == "tensorflow":
        export_tensorflow(FOLDER / "tf2onnx-cnn.onnx")
        return
    for name in TORCH_NETWORKS:
        for exporter in EXPORTERS:
            path = FOLDER / f"{exporter}-{name}.onnx"
            export_torch(torch_network(name, TINY), path, exporter, open_batch=name != "cnn")
            drop_stack_traces(path)


if __name__ == "__main__":
    main()
