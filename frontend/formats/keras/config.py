"""The configuration of a Keras model, checked before anything is made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rankslice.framework.errors import Mistake, nearest
from rankslice.framework.wording import described, quoted
from rankslice.frontend.formats.keras.allowed_classes import (
    APPLICATION_LAYERS,
    CELLS,
    FUNCTIONS,
    LAYERS,
    MODELS,
    OPERATION_MODULES,
    REASONS,
    VALUES,
)

_ALLOWED = MODELS | LAYERS | CELLS | VALUES
_KERAS_MODULE = re.compile(r"(keras|tf_keras|tensorflow\.keras)(\.[A-Za-z_]\w*)*")
_CLASS_NAME = re.compile(r"[A-Z]\w*")
_NOT_LOADED = ("compile_config",)
"""What the top of a configuration holds for training only."""


def config_mistakes(where: str, config: object) -> Iterator[Mistake]:
    """Yield the parts of a model's configuration that are not known to be harmless.

    Args:
        config: its JSON value: objects with ``class_name``, ``config`` and, in newer files,
            ``module`` and ``registered_name``.
    """
    if not isinstance(config, dict) or not isinstance(config.get("class_name"), str):
        found = f"its configuration is {described(config)}"
        yield Mistake(where, found, "expected that of a Keras model")
        return
    if config["class_name"] not in MODELS:
        yield Mistake(
            where,
            f"is of the class {quoted(config['class_name'])}, whose Python code is not in the file",
            "expected a functional or a sequential model of Keras's own layers",
        )
        return
    top = {name: value for name, value in config.items() if name not in _NOT_LOADED}
    named = _objects(where, top)
    yield from dict.fromkeys(
        mistake for where, value in named for mistake in _class_mistakes(where, value)
    )


def _objects(where: str, top: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all that names a class, however deep it is, and where it stands."""
    waiting: list[tuple[str, object]] = [("", top)]
    while waiting:
        layer, value = waiting.pop()
        if isinstance(value, list):
            waiting += [(layer, item) for item in reversed(value)]
        if not isinstance(value, dict):
            continue
        if "class_name" in value or "registered_name" in value:
            layer = _layer_name(value) or layer
            yield f"{where}: layer {quoted(layer)}" if layer else where, value
        waiting += [(layer, item) for item in reversed(value.values())]


def _layer_name(value: Mapping[str, Any]) -> str:
    config = value.get("config")
    if not isinstance(config, dict) or str(value.get("class_name")) in VALUES:
        return ""
    name = config.get("name")
    return name if isinstance(name, str) else ""


def _class_mistakes(where: str, value: Mapping[str, Any]) -> Iterator[Mistake]:
    name, module = value.get("class_name"), value.get("module")
    registered = value.get("registered_name")
    if not isinstance(name, str) or not isinstance(module, str | None):
        yield Mistake(where, f"its class is {described(name)} of module {described(module)}")
    elif name in REASONS:
        yield Mistake(where, f"{quoted(name)} {REASONS[name]}", "replace it by layers of Keras")
    elif registered not in (None, name):
        yield _custom(where, str(registered))
    elif name == "function":
        yield from _function_mistakes(where, value)
    elif module in OPERATION_MODULES:
        if name in OPERATION_MODULES[module] or not _CLASS_NAME.fullmatch(name):
            yield Mistake(where, f"the operation {quoted(name)} takes Python code")
    elif name in APPLICATION_LAYERS:
        # Files of the older form (.h5) name no modules; what they call by such a name is Keras's.
        if (module or registered) and module != APPLICATION_LAYERS[name]:
            yield _custom(where, f"{module}.{name}" if module else name)
    elif module and not _KERAS_MODULE.fullmatch(module):
        yield _custom(where, f"{module}.{name}")
    elif name not in _ALLOWED:
        yield _custom(where, name)
    elif isinstance(config := value.get("config"), dict) and config.get("stateful"):
        found = f"{quoted(name)} keeps its state from frame to frame"
        yield Mistake(where, found, "expected stateful=False")


def _function_mistakes(where: str, value: Mapping[str, Any]) -> Iterator[Mistake]:
    name, module = value.get("config"), value.get("module")
    if str(name) not in FUNCTIONS or module not in (None, "builtins", "keras.activations"):
        yield _custom(where, f"{module}.{name}" if module else str(name), "function")


def _custom(where: str, name: str, kind: str = "class") -> Mistake:
    hint = nearest(name, LAYERS) if kind == "class" else ""
    found = f"the {kind} {quoted(name)} is not one of Keras's own that can be loaded safely"
    return Mistake(where, found, hint or "replace it by layers of Keras")
