"""The generated ``driver.py``: a plan rendered as Python tables and one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jinja2

from rankslice.framework.files.templates import template_text
from rankslice.framework.mapping import Placement
from rankslice.framework.plan import Channel, Plan, Segment

__all__ = ["Literal", "render_driver"]

_LONGEST_NAME_IN_COMMENT = 60


class Literal:
    """The Python source of a value: the only kind of text that may enter generated code."""

    def __init__(self, value: str | int | tuple[str, ...] | tuple[int, ...]) -> None:
        """Take a value. Its source is ASCII and one line, whatever the value is."""
        self.value = value

    def __str__(self) -> str:
        """Return the source, in double quotes where that needs no escapes."""
        if isinstance(self.value, tuple):
            parts = [str(Literal(item)) for item in self.value]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        source = ascii(self.value)
        if source.startswith("'") and '"' not in source and "\\'" not in source:
            source = f'"{source[1:-1]}"'
        return source


@dataclass(frozen=True, slots=True)
class _ChannelEnd:
    tensor: Literal
    peer: int
    channel: int


@dataclass(frozen=True, slots=True)
class _SegmentBlock:
    file: Literal
    inputs: Literal
    outputs: Literal


@dataclass(frozen=True, slots=True)
class _RankBlock:
    number: int
    layer_count: int
    first_layer: Literal
    last_layer: Literal
    key: Literal
    host: Literal
    accelerator: Literal
    cores: Literal
    engine: Literal
    receives: tuple[_ChannelEnd, ...]
    segments: tuple[_SegmentBlock, ...]
    sends: tuple[_ChannelEnd, ...]


def render_driver(plan: Plan, plan_sha256: str) -> str:
    """Return the source of ``driver.py``.

    Args:
        plan: to render.
        plan_sha256: hash of the bytes of ``plan.json``; the driver compares it at its start.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text),
        undefined=jinja2.StrictUndefined,
        finalize=_refuse_plain_text,
        keep_trailing_newline=True,
        autoescape=False,  # it is Python, not HTML; plain text is refused altogether
    )
    return environment.get_template("driver.py.j2").render(
        model=Literal(plan.model.name),
        plan_sha256=Literal(plan_sha256),
        mpirun_arguments=_mpirun_arguments(plan),
        source=plan.source,
        sink=plan.sink,
        window=plan.window,
        ranks=[_block(plan, placement) for placement in plan.ranks],
    )


class _Prose(str):
    """Fixed text for the docstring; never anything from a user's file."""

    __slots__ = ()


def _mpirun_arguments(plan: Plan) -> _Prose:
    shared = any(placement.shared for placement in plan.ranks)
    binding = " --bind-to core:overload-allowed" if shared else ""
    return _Prose(f"--map-by rankfile:file=rankfile --hostfile hostfile{binding}")


def _refuse_plain_text(value: Any) -> Any:
    if isinstance(value, (Literal, int, _Prose)):
        return value
    raise TypeError(f"{type(value).__name__} may not enter generated code as it is: {value!r}")


def _block(plan: Plan, placement: Placement) -> _RankBlock:
    segments = plan.of_rank(placement.rank)
    layers = [layer for segment in segments for layer in segment.layers]
    return _RankBlock(
        number=placement.rank,
        layer_count=len(layers),
        first_layer=Literal(layers[0][:_LONGEST_NAME_IN_COMMENT]),
        last_layer=Literal(layers[-1][:_LONGEST_NAME_IN_COMMENT]),
        key=Literal(placement.key),
        host=Literal(placement.host),
        accelerator=Literal(placement.accelerator),
        cores=Literal(placement.cores),
        engine=Literal(placement.engine),
        receives=tuple(
            _channel_end(channel, channel.source)
            for channel in plan.channels
            if channel.destination == placement.rank
        ),
        segments=tuple(_segment_block(segment) for segment in segments),
        sends=tuple(
            _channel_end(channel, channel.destination)
            for channel in plan.channels
            if channel.source == placement.rank
        ),
    )


def _channel_end(channel: Channel, peer: int) -> _ChannelEnd:
    return _ChannelEnd(Literal(channel.tensor), peer, channel.number)


def _segment_block(segment: Segment) -> _SegmentBlock:
    return _SegmentBlock(Literal(segment.file), Literal(segment.inputs), Literal(segment.outputs))
