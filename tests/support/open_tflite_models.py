"""Small ``.tflite`` models with open sizes, made without TensorFlow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from flatbuffers import flexbuffers
from tflite_models import Made, constant, drawn, made, operator

SAME, VALID = 0, 1
"""Kinds of padding."""


def image_model(folder: Path, padding: int = SAME) -> Path:
    """Return a model of images of any size, with a map of half their size and its mean."""
    tensors = {
        "image": Made((1, -1, -1, 3)),
        "kernel": drawn(4, 3, 3, 3),
        "bias": drawn(4),
        "features": Made((1, -1, -1, 4)),
        "kernel2": drawn(2, 3, 3, 4),
        "bias2": drawn(2),
        "sums": Made((1, -1, -1, 2)),
        "map": Made((1, -1, -1, 2)),
        "axes": constant([1, 2], "int32"),
        "mean": Made((1, 2)),
    }
    keeping = {"stride_w": 1, "stride_h": 1, "padding": padding, "fused_activation_function": 1}
    halving = {**keeping, "stride_w": 2, "stride_h": 2}
    operators = [
        operator("CONV_2D", "image kernel bias", "features", "Conv2DOptions", **halving),
        operator("CONV_2D", "features kernel2 bias2", "sums", "Conv2DOptions", **keeping),
        operator("LOGISTIC", "sums", "map"),
        operator("MEAN", "map axes", "mean", "ReducerOptions"),
    ]
    return made(folder / "images.tflite", tensors, operators, "image", "map mean")


def text_model(folder: Path) -> Path:
    """Return a model that gives scores to each token of a batch of texts of one length."""
    tensors = {
        "tokens": Made((-1, -1), "int32"),
        "words": drawn(50, 8),
        "embedded": Made((-1, -1, 8)),
        "weights": drawn(8, 8),
        "hidden": Made((-1, -1, 8)),
        "similarity": Made((-1, -1, -1)),
        "attention": Made((-1, -1, -1)),
        "mixed": Made((-1, -1, 8)),
        "classes": drawn(3, 8),
        "scores": Made((-1, -1, 3)),
    }
    dense = {"keep_num_dims": 1}
    operators = [
        operator("GATHER", "words tokens", "embedded", "GatherOptions"),
        operator("FULLY_CONNECTED", "embedded weights", "hidden", "FullyConnectedOptions", **dense),
        operator("BATCH_MATMUL", "hidden hidden", "similarity", "BatchMatMulOptions", adj_y=1),
        operator("SOFTMAX", "similarity", "attention", "SoftmaxOptions", beta=1),
        operator("BATCH_MATMUL", "attention hidden", "mixed", "BatchMatMulOptions"),
        operator("FULLY_CONNECTED", "mixed classes", "scores", "FullyConnectedOptions", **dense),
    ]
    return made(folder / "text.tflite", tensors, operators, "tokens", "scores")


def rows_model(folder: Path) -> Path:
    """Return a model that keeps those of 12 rows whose sum is positive: 0 to 12."""
    tensors = {
        "rows": Made((12, 4)),
        "axis": constant([1], "int32"),
        "sums": Made((12,)),
        "zero": constant(0),
        "positive": Made((12,), "bool"),
        "places": Made((-1, 1), "int64"),
        "line": constant([-1], "int32"),
        "chosen": Made((-1,), "int64"),
        "kept": Made((-1, 4)),
        "weights": drawn(3, 4),
        "hidden": Made((-1, 3)),
        "folded": constant([-1, 1, 3], "int32"),
        "found": Made((-1, 1, 3)),
        "scores": Made((-1, 1, 3)),
        "total": Made((1, 3)),
        "first": constant([0], "int32"),
    }
    operators = [
        operator("SUM", "rows axis", "sums", "ReducerOptions"),
        operator("GREATER", "sums zero", "positive"),
        operator("WHERE", "positive", "places"),
        operator("RESHAPE", "places line", "chosen"),
        operator("GATHER", "rows chosen", "kept", "GatherOptions"),
        operator("FULLY_CONNECTED", "kept weights", "hidden", "FullyConnectedOptions"),
        operator("RESHAPE", "hidden folded", "found"),
        operator("LOGISTIC", "found", "scores"),
        operator("SUM", "scores first", "total", "ReducerOptions"),
    ]
    return made(folder / "rows.tflite", tensors, operators, "rows", "scores total")


def suppression_model(folder: Path) -> Path:
    """Return a model that keeps 6 of 10 boxes: the places of the others are padding."""
    tensors = {
        "boxes": Made((10, 4)),
        "scores": Made((10,)),
        "most": constant(6, "int32"),
        "overlap": constant(0.5),
        "least": constant(0.1),
        "sigma": constant(0),
        "places": Made((-1,), "int32"),
        "kept_scores": Made((-1,)),
        "count": Made((), "int32"),
        "kept": Made((-1, 4)),
    }
    operators = [
        operator(
            "NON_MAX_SUPPRESSION_V5",
            "boxes scores most overlap least sigma",
            "places kept_scores count",
        ),
        operator("GATHER", "boxes places", "kept", "GatherOptions"),
    ]
    return made(
        folder / "suppression.tflite", tensors, operators, "boxes scores", "kept kept_scores count"
    )


def detection_model(folder: Path) -> Path:
    """Return a model with the detection post-processing of TensorFlow's detectors: 5 rows."""
    settings = flexbuffers.Dumps(
        {
            "max_detections": 5,
            "max_classes_per_detection": 1,
            "detections_per_class": 5,
            "use_regular_nms": False,
            "nms_score_threshold": 0.3,
            "nms_iou_threshold": 0.5,
            "num_classes": 3,
            "y_scale": 10.0,
            "x_scale": 10.0,
            "h_scale": 5.0,
            "w_scale": 5.0,
        }
    )
    names = "boxes classes found_scores count"
    anchors = np.random.default_rng(3).random((20, 4)) * [1, 1, 0.2, 0.2] + [0, 0, 0.1, 0.1]
    tensors = {
        "encodings": Made((1, 20, 4)),
        "raw": Made((1, 20, 4)),
        "scores": Made((1, 20, 4)),
        "anchors": constant(anchors),
        "boxes": Made((1, 5, 4)),
        "classes": Made((1, 5)),
        "found_scores": Made((1, 5)),
        "count": Made((1,)),
    }
    operators = [
        operator("LOGISTIC", "raw", "scores"),
        operator(
            "TFLite_Detection_PostProcess",
            "encodings scores anchors",
            names,
            custom=bytes(settings),
        ),
    ]
    return made(folder / "detector.tflite", tensors, operators, "encodings raw", names)
