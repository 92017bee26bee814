"""Make the ``.onnx`` files of ``open_sizes``: networks in which tensors change their size.

Detectors whose number of objects the data decides, and networks that take images, texts and sounds
of any size. The files are committed, so tests need none of the exporters. To make them anew::

    pip install torch==2.14.1 torchvision transformers onnxscript onnx
    python tests/models/exports/make_open_sizes.py

Nothing is downloaded: networks are made from configurations, with few channels and seeded random
weights. Statistics of batch normalisation are those of the frames of ``open_frames``, and a
detector's score threshold is such that these frames have none to about fifty objects. Classes of
TorchVision and Transformers are exported as they are, but for what the functions here change.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from open_frames import (
    AUDIO,
    FIXED_IMAGE,
    LARGEST_IMAGE,
    MEL_BANDS,
    TEXTS,
    TOKENS,
    VOCABULARY,
    frame_of,
)
from torch import Tensor, nn
from torch.nn import functional

FOLDER = Path(__file__).parent / "open_sizes"
EXPORTERS = ("dynamo", "torchscript")
CLASSES = 5
"""Of the detectors; class 0 of SSDLite, the two-stage detector and DETR is the background."""
DETECTIONS = ("boxes", "scores", "labels")
OBJECTS = 7
"""Of a frame in the mean; no frame has more than :data:`OBJECTS_AT_MOST`."""
OBJECTS_AT_MOST = 50


@dataclass(frozen=True)
class OpenNetwork:
    """A PyTorch module and which of its sizes are open."""

    module: nn.Module
    inputs: Mapping[str, Tensor]
    outputs: tuple[str, ...]
    open_sizes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """By name of an input: names of its open sizes by axis."""
    largest: Mapping[str, int] = field(default_factory=dict)
    """By name of an open size."""
    multiple: int = 1
    """What open sizes are multiples of."""


# SSDLite (Sandler et al. 2018; Howard et al. 2019)


def _mobilenet(width: float) -> Any:
    from torchvision.models.mobilenetv3 import MobileNetV3, _mobilenet_v3_conf

    settings, last = _mobilenet_v3_conf("mobilenet_v3_large", width_mult=width, reduced_tail=True)
    return MobileNetV3(settings, last)


def ssdlite() -> OpenNetwork:
    """Return TorchVision's SSDLite with a narrow MobileNetV3."""
    from torchvision.models.detection import _utils
    from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
    from torchvision.models.detection.ssd import SSD
    from torchvision.models.detection.ssdlite import SSDLiteFeatureExtractorMobileNet, SSDLiteHead

    features = _mobilenet(0.06).features
    strided = [index for index, block in enumerate(features) if getattr(block, "_is_cn", False)]
    backbone = SSDLiteFeatureExtractorMobileNet(
        features, strided[-1], nn.BatchNorm2d, width_mult=0.02, min_depth=4
    )
    size = (FIXED_IMAGE, FIXED_IMAGE)
    anchors = DefaultBoxGenerator([[2, 3] for _ in range(6)], min_ratio=0.2, max_ratio=0.95)
    channels = _utils.retrieve_out_channels(backbone, size)
    head = SSDLiteHead(channels, anchors.num_anchors_per_location(), CLASSES, nn.BatchNorm2d)
    model = SSD(
        backbone,
        anchors,
        size,
        CLASSES,
        head=head,
        nms_thresh=0.45,
        detections_per_img=OBJECTS_AT_MOST,
        topk_candidates=40,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    return _calibrated(
        "ssdlite", Listed(model), lambda value: setattr(model, "score_thresh", value)
    )


class Listed(nn.Module):
    """A detector of TorchVision, called with a tensor instead of a list of images."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        found = self.model([image[0]])
        if isinstance(found, tuple):
            found = found[1]
        return tuple(found[0][name] for name in DETECTIONS)


# Two stages: Faster R-CNN (Ren et al. 2015)


def faster_rcnn() -> OpenNetwork:
    """Return TorchVision's Faster R-CNN with two levels of features, for images of any size."""
    from collections import OrderedDict

    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.faster_rcnn import (
        FasterRCNN,
        FastRCNNPredictor,
        TwoMLPHead,
    )
    from torchvision.ops import MultiScaleRoIAlign

    class Backbone(nn.Module):
        out_channels = 16

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(_conv(3, 8, 3, 2), _conv(8, 16, 3, 2), _conv(16, 16, 3, 2))
            self.deeper = _conv(16, 16, 3, 2)

        def forward(self, image: Tensor) -> Any:
            fine = self.stem(image)
            return OrderedDict([("0", fine), ("1", self.deeper(fine))])

    model = FasterRCNN(
        Backbone(),
        min_size=64,
        max_size=96,
        rpn_anchor_generator=AnchorGenerator(((12,), (32,)), ((0.5, 1.0, 2.0),) * 2),
        rpn_pre_nms_top_n_test=60,
        rpn_post_nms_top_n_test=40,
        rpn_nms_thresh=0.6,
        box_roi_pool=MultiScaleRoIAlign(["0", "1"], 3, 2, canonical_scale=32, canonical_level=4),
        box_head=TwoMLPHead(16 * 9, 48),
        box_predictor=FastRCNNPredictor(48, CLASSES),
        box_detections_per_img=OBJECTS_AT_MOST,
        box_nms_thresh=0.4,
    )
    return _calibrated(
        "faster_rcnn",
        Listed(model),
        lambda value: setattr(model.roi_heads, "score_thresh", value),
        _image_open(),
        {"height": LARGEST_IMAGE, "width": LARGEST_IMAGE},
    )


# YOLOv8 and YOLO11 (Ultralytics 2023, 2024): anchor-free heads with a distribution per side


class Conv(nn.Module):
    """Convolution, batch normalisation and SiLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        act: bool = True,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False
        )
        self.bn = nn.BatchNorm2d(outputs)
        self.act = nn.SiLU() if act else nn.Identity()

    def forward(self, values: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(values)))


def _conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> Conv:
    return Conv(inputs, outputs, kernel, stride)


class Bottleneck(nn.Module):
    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.first = Conv(channels, channels, 3)
        self.second = Conv(channels, channels, 3)
        self.shortcut = shortcut

    def forward(self, values: Tensor) -> Tensor:
        found = self.second(self.first(values))
        return values + found if self.shortcut else found


class C3k(nn.Module):
    """Three convolutions around two bottlenecks, as YOLO11 has them within C3k2."""

    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        half = channels // 2
        self.left = Conv(channels, half)
        self.right = Conv(channels, half)
        self.blocks = nn.Sequential(Bottleneck(half, shortcut), Bottleneck(half, shortcut))
        self.last = Conv(2 * half, channels)

    def forward(self, values: Tensor) -> Tensor:
        return self.last(torch.cat((self.blocks(self.left(values)), self.right(values)), 1))


class C2f(nn.Module):
    """Split channels; each block's result is kept and joined (C3k2 with another block)."""

    def __init__(
        self, inputs: int, outputs: int, shortcut: bool = True, block: Any = Bottleneck
    ) -> None:
        super().__init__()
        self.half = outputs // 2
        self.first = Conv(inputs, 2 * self.half)
        self.blocks = nn.ModuleList([block(self.half, shortcut)])
        self.last = Conv(3 * self.half, outputs)

    def forward(self, values: Tensor) -> Tensor:
        parts = list(self.first(values).chunk(2, 1))
        parts.extend(block(parts[-1]) for block in self.blocks)
        return self.last(torch.cat(parts, 1))


class Sppf(nn.Module):
    """Spatial pyramid pooling by three pools in a row."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Conv(channels, channels // 2)
        self.last = Conv(2 * channels, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, values: Tensor) -> Tensor:
        parts = [self.first(values)]
        parts.extend(self.pool(parts[-1]) for _ in range(3))
        return self.last(torch.cat(parts, 1))


class C2psa(nn.Module):
    """Attention over positions in half of the channels, as at the end of YOLO11's backbone."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.half = channels // 2
        self.first = Conv(channels, channels)
        self.qkv = Conv(self.half, 2 * self.half, act=False)
        self.place = Conv(self.half, self.half, 3, groups=self.half, act=False)
        self.project = Conv(self.half, self.half, act=False)
        self.inner = nn.Sequential(
            Conv(self.half, 2 * self.half), Conv(2 * self.half, self.half, act=False)
        )
        self.last = Conv(channels, channels)

    def forward(self, values: Tensor) -> Tensor:
        kept, values = self.first(values).split((self.half, self.half), 1)
        batch, channels, height, width = values.shape
        keys = self.half // 2
        query, key, value = self.qkv(values).flatten(2).split((keys, keys, self.half), 1)
        weights = (query.transpose(1, 2) @ key * keys**-0.5).softmax(-1)
        found = (value @ weights.transpose(1, 2)).view(batch, channels, height, width)
        found = found + self.place(value.reshape(batch, channels, height, width))
        values = values + self.project(found)
        values = values + self.inner(values)
        return self.last(torch.cat((kept, values), 1))


class YoloHead(nn.Module):
    """Boxes as distributions over distances, classes as logits; no anchors."""

    bins = 8

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        self.strides = (8, 16, 32)
        self.boxes = nn.ModuleList(
            nn.Sequential(Conv(size, 8, 3), Conv(8, 8, 3), nn.Conv2d(8, 4 * self.bins, 1))
            for size in channels
        )
        self.classes = nn.ModuleList(
            nn.Sequential(
                Conv(size, size, 3, groups=size), Conv(size, 16), nn.Conv2d(16, CLASSES, 1)
            )
            for size in channels
        )
        self.distances = nn.Conv2d(self.bins, 1, 1, bias=False)
        self.distances.weight.data[:] = torch.arange(self.bins).view(1, self.bins, 1, 1)

    def forward(self, features: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return boxes (1, N, 4) as corners in pixels, and scores (1, N, classes)."""
        boxes = []
        scores = []
        for values, stride, box, of_class in zip(
            features, self.strides, self.boxes, self.classes, strict=True
        ):
            batch, _, height, width = values.shape
            rows = torch.arange(height).float() + 0.5
            columns = torch.arange(width).float() + 0.5
            centres = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), 0).flatten(1)
            sides = box(values).view(batch, 4, self.bins, height * width).transpose(1, 2)
            sides = self.distances(sides.softmax(1)).view(batch, 4, height * width)
            corners = torch.cat((centres - sides[:, :2], centres + sides[:, 2:]), 1) * stride
            boxes.append(corners.transpose(1, 2))
            scores.append(of_class(values).flatten(2).transpose(1, 2).sigmoid())
        return torch.cat(boxes, 1), torch.cat(scores, 1)


class Yolo(nn.Module):
    """Backbone, two-way pyramid and head, then non-maximum suppression per class."""

    def __init__(self, eleven: bool) -> None:
        super().__init__()
        narrow, middle, wide = 12, 16, 24
        block = C3k if eleven else Bottleneck
        self.stem = nn.Sequential(Conv(3, 8, 3, 2), Conv(8, 8, 3, 2), C2f(8, 8))
        self.third = nn.Sequential(Conv(8, narrow, 3, 2), C2f(narrow, narrow))
        self.fourth = nn.Sequential(Conv(narrow, middle, 3, 2), C2f(middle, middle, block=block))
        deepest = [Conv(middle, wide, 3, 2), C2f(wide, wide, block=block), Sppf(wide)]
        self.fifth = nn.Sequential(*deepest, *([C2psa(wide)] if eleven else []))
        self.up = nn.Upsample(scale_factor=2.0)
        self.middle = C2f(wide + middle, middle, False, block)
        self.fine = C2f(middle + narrow, narrow, False, block)
        self.down_fine = Conv(narrow, narrow, 3, 2)
        self.middle_again = C2f(narrow + middle, middle, False, block)
        self.down_middle = Conv(middle, middle, 3, 2)
        self.coarse = C2f(middle + wide, wide, False, block)
        self.head = YoloHead((narrow, middle, wide))
        self.score_threshold = 0.25
        self.overlap = 0.45

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        third = self.third(self.stem(image))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        middle = self.middle(torch.cat((self.up(fifth), fourth), 1))
        fine = self.fine(torch.cat((self.up(middle), third), 1))
        middle = self.middle_again(torch.cat((self.down_fine(fine), middle), 1))
        coarse = self.coarse(torch.cat((self.down_middle(middle), fifth), 1))
        boxes, scores = self.head([fine, middle, coarse])
        best, labels = scores[0].max(1)
        candidates = best > self.score_threshold
        return _suppressed(boxes[0][candidates], best[candidates], labels[candidates], self.overlap)


def _suppressed(
    boxes: Tensor, scores: Tensor, labels: Tensor, overlap: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Suppress boxes of one class that overlap, as Ultralytics does: classes are moved apart."""
    from torchvision.ops import nms

    kept = nms(boxes + labels.unsqueeze(1) * 4096.0, scores, overlap)[:OBJECTS_AT_MOST]
    return boxes[kept], scores[kept], labels[kept]


def yolov8() -> OpenNetwork:
    """Return YOLOv8's blocks for an image of fixed size."""
    model = Yolo(eleven=False)
    return _calibrated("yolov8", model, lambda value: setattr(model, "score_threshold", value))


def yolo11() -> OpenNetwork:
    """Return YOLO11's blocks, for an image whose sizes are multiples of 32."""
    model = Yolo(eleven=True)
    return _calibrated(
        "yolo11",
        model,
        lambda value: setattr(model, "score_threshold", value),
        _image_open(),
        {"height": LARGEST_IMAGE, "width": LARGEST_IMAGE},
        multiple=32,
    )


# DETR (Carion et al. 2020)


def detr() -> OpenNetwork:
    """Return Transformers' DETR with a small ResNet; queries of enough score leave."""
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    config = DetrConfig(
        use_timm_backbone=False,
        backbone_config=ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 16, 16, 24],
            depths=[1, 1, 1, 1],
            layer_type="basic",
            out_features=["stage4"],
        ),
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_queries=OBJECTS_AT_MOST,
        num_labels=CLASSES,
        init_std=0.3,
        attn_implementation="eager",
    )

    class Detected(nn.Module):
        score_threshold = 0.5

        def __init__(self) -> None:
            super().__init__()
            self.model = DetrForObjectDetection(config)
            nn.init.normal_(self.model.model.query_position_embeddings.weight, std=1.0)
            for layer in self.model.model.decoder.layers:  # queries look at different places
                layer.encoder_attn.q_proj.weight.data *= 3
                layer.encoder_attn.v_proj.weight.data *= 3

        def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            found = self.model(image)
            scores, labels = found.logits[0].softmax(-1)[:, :-1].max(-1)
            kept = scores > self.score_threshold
            centre, size = found.pred_boxes[0][kept].split((2, 2), 1)
            boxes = torch.cat((centre - size / 2, centre + size / 2), 1)
            return boxes, scores[kept], labels[kept]

    model = Detected()
    return _calibrated(
        "detr",
        model,
        lambda value: setattr(model, "score_threshold", value),
        _image_open(),
        {"height": LARGEST_IMAGE, "width": LARGEST_IMAGE},
    )


# Texts, images and sounds of any size


class Named(nn.Module):
    """A module of Transformers, called by position, that gives one tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask=attention_mask).last_hidden_state


def _texts(model: nn.Module) -> OpenNetwork:
    tokens = torch.randint(0, VOCABULARY, (2, 12))
    axes = {0: "batch", 1: "sequence"}
    return OpenNetwork(
        Named(model),
        {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)},
        ("last_hidden_state",),
        {"input_ids": axes, "attention_mask": axes},
        {"batch": TEXTS, "sequence": TOKENS},
    )


def bert() -> OpenNetwork:
    """Return BERT's encoder for batches of texts of any length."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    return _texts(BertModel(config, add_pooling_layer=False))


def t5() -> OpenNetwork:
    """Return T5's encoder, whose biases follow from distances between tokens."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=16,
        relative_attention_max_distance=32,
        feed_forward_proj="gated-gelu",
        initializer_factor=0.4,
    )
    return _texts(T5EncoderModel(config))


def lraspp() -> OpenNetwork:
    """Return TorchVision's LR-ASPP for segmentation, for images of any size."""
    from torchvision.models._utils import IntermediateLayerGetter
    from torchvision.models.segmentation.lraspp import LRASPP

    features = _mobilenet(0.06).features
    strided = [index for index, block in enumerate(features) if getattr(block, "_is_cn", False)]
    low, high = strided[1], len(features) - 1
    backbone = IntermediateLayerGetter(features, {str(low): "low", str(high): "high"})
    model = LRASPP(backbone, features[low].out_channels, features[high].out_channels, CLASSES, 16)

    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
            scores = self.model(image)["out"]
            return scores, scores.argmax(1)

    network = OpenNetwork(
        Scores(),
        {"image": torch.rand(1, 3, 80, 64)},
        ("scores", "classes"),
        _image_open(),
        {"height": LARGEST_IMAGE, "width": LARGEST_IMAGE},
    )
    _settle("lraspp", network.module)
    return network


def whisper() -> OpenNetwork:
    """Return Whisper's encoder; other than the original it takes sounds of any length."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        num_mel_bins=MEL_BANDS,
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        max_source_positions=AUDIO // 2,
        init_std=0.2,
    )

    class AnyLength(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = WhisperEncoder(config)

        def forward(self, mel: Tensor) -> Tensor:
            values = functional.gelu(self.encoder.conv1(mel))
            values = functional.gelu(self.encoder.conv2(values)).permute(0, 2, 1)
            values = values + self.encoder.embed_positions.weight[: values.shape[1]]
            for layer in self.encoder.layers:
                values = layer(values, None)
            return self.encoder.layer_norm(values)

    return OpenNetwork(
        AnyLength(),
        {"mel": torch.randn(1, MEL_BANDS, 48)},
        ("states",),
        {"mel": {2: "windows"}},
        {"windows": AUDIO},
    )


NETWORKS: Mapping[str, Callable[[], OpenNetwork]] = {
    "ssdlite": ssdlite,
    "yolov8": yolov8,
    "yolo11": yolo11,
    "faster_rcnn": faster_rcnn,
    "detr": detr,
    "bert": bert,
    "t5": t5,
    "lraspp": lraspp,
    "whisper": whisper,
}


# Calibration


def _image_open() -> Mapping[str, Mapping[int, str]]:
    return {"image": {2: "height", 3: "width"}}


def _calibration(name: str, module: nn.Module) -> list[Any]:
    """Return what the module gives for the frames used for calibration."""
    frames = [frame_of(name, index) for index in range(60)]
    with torch.no_grad():
        return [module(*map(torch.from_numpy, frame.values())) for frame in frames]


def _settle(name: str, module: nn.Module) -> None:
    """Set the statistics of batch normalisation to the mean of those of frames."""
    seen: dict[nn.BatchNorm2d, int] = {}

    def update(norm: nn.BatchNorm2d, arguments: tuple[Tensor]) -> None:
        values = arguments[0].transpose(0, 1).flatten(1)
        if values.shape[1] > 1:  # one value has no variance
            seen[norm] = seen.get(norm, 0) + 1
            norm.running_mean.lerp_(values.mean(1), 1 / seen[norm])
            norm.running_var.lerp_(values.var(1), 1 / seen[norm])

    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(update) for norm in norms]
    module.eval()
    _calibration(name, module)
    for hook in hooks:
        hook.remove()


def _calibrated(
    name: str,
    module: nn.Module,
    set_threshold: Callable[[float], None],
    open_sizes: Mapping[str, Mapping[int, str]] | None = None,
    largest: Mapping[str, int] | None = None,
    multiple: int = 1,
) -> OpenNetwork:
    """Choose the score from which on an object is one; return the detector."""
    for part in module.modules():  # scores that differ between places
        if isinstance(part, nn.Conv2d) and part.weight.std() < 0.1:
            nn.init.kaiming_normal_(part.weight)
    set_threshold(2.0)
    _settle(name, module)
    lower, upper = 0.0, 1.0
    for _ in range(16):
        threshold = (lower + upper) / 2
        set_threshold(threshold)
        counts = [len(found[1]) for found in _calibration(name, module)]
        most = sum(counts) > OBJECTS * len(counts)
        lower, upper = (threshold, upper) if most else (lower, threshold)
    set_threshold(upper)
    counts = sorted(len(found[1]) for found in _calibration(name, module))
    print(f"{name}: objects {counts} from score {upper:.3f} on")
    size = FIXED_IMAGE if not open_sizes else 64
    return OpenNetwork(
        module,
        {
            "image": torch.from_numpy(
                frame_of("ssdlite", 7)["image"][:, :, :size, :FIXED_IMAGE].copy()
            )
        },
        DETECTIONS,
        open_sizes or {},
        largest or {},
        multiple,
    )


# Export


@contextlib.contextmanager
def _traceable() -> Iterator[None]:
    """Replace what ``torch.export`` cannot follow in TorchVision, by the same without branches.

    It can follow ``batch_images``, but makes a constant as large as an image of it.
    """
    from torchvision.models.detection import _utils

    def topk_min(values: Tensor, most: int, axis: int) -> Any:
        return torch.sym_min(most, values.size(axis))

    def batched_nms(boxes: Tensor, scores: Tensor, groups: Tensor, overlap: float) -> Tensor:
        from torchvision.ops import nms

        return nms(boxes + groups.to(boxes).unsqueeze(1) * 4096.0, scores, overlap)

    def batch_images(_: Any, images: list[Tensor], size_divisible: int = 32) -> Tensor:
        height, width = images[0].shape[1:]
        margins = (0, -width % size_divisible, 0, -height % size_divisible)
        return functional.pad(images[0], margins)[None]

    transform = "torchvision.models.detection.transform.GeneralizedRCNNTransform"
    with (
        mock.patch.object(_utils, "_topk_min", topk_min),
        mock.patch("torchvision.ops.boxes.batched_nms", batched_nms),
        mock.patch(f"{transform}.batch_images", batch_images),
    ):
        yield


def export(network: OpenNetwork, path: Path, exporter: str) -> None:
    """Write the network with ``torch.onnx.export``, by ``dynamo`` or ``torchscript``."""
    names = {"input_names": list(network.inputs), "output_names": list(network.outputs)}
    network.module.eval()
    arguments = tuple(network.inputs.values())
    if exporter == "dynamo":
        dims = {
            size: network.multiple
            * torch.export.Dim(f"_{size}", min=1, max=most // network.multiple)
            if network.multiple > 1
            else torch.export.Dim(size, min=1, max=most)
            for size, most in network.largest.items()
        }
        shapes = tuple(
            {axis: dims[size] for axis, size in network.open_sizes.get(name, {}).items()}
            for name in network.inputs
        )
        with _traceable(), torch.no_grad():
            torch.onnx.export(
                network.module,
                arguments,
                path,
                dynamo=True,
                external_data=False,
                dynamic_shapes=shapes if network.open_sizes else None,
                **names,
            )
    else:
        with torch.no_grad():
            torch.onnx.export(
                network.module,
                arguments,
                path,
                dynamo=False,
                opset_version=17,
                dynamic_axes={name: dict(axes) for name, axes in network.open_sizes.items()},
                **names,
            )
    _drop_notes(path)


def _drop_notes(path: Path) -> None:
    """Remove what the exporter notes at each node: half of the file, and paths of one machine."""
    import onnx

    model = onnx.load(path)
    graph = model.graph
    for record in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
        del record.metadata_props[:]
        record.doc_string = ""
    for function in model.functions:
        for record in (function, *function.node):
            del record.metadata_props[:]
    onnx.save(model, path)


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--exporter", action="append", choices=EXPORTERS)
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for name in arguments.names:
        torch.manual_seed(0)
        network = NETWORKS[name]()
        for exporter in arguments.exporter or EXPORTERS:
            export(network, FOLDER / f"{exporter}-{name}.onnx", exporter)


if __name__ == "__main__":
    main()
