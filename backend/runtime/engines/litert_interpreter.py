"""LiteRT's interpreter, on CPU cores and with delegate libraries; it releases the GIL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FrameError, JobError, is_of_memory
from ..figures.acceleration import Acceleration, refuse_fallback
from ..job import Tensor
from ..job.records import VARIABLES
from ..sizes import OpenSlot, Slot
from . import Engine, EngineSettings, FileTensor, match_tensors, refuse_open_sizes
from .litert_package import LiteRtPackage, first_line

_UNKNOWN_OPERATOR = re.compile(r"builtin opcode '(\w+)' version '(\d+)'")
_UNRESOLVED_CUSTOM = re.compile(r"Encountered unresolved custom op: (.+?)\.(?:;|$)")
_ERRORS = (ValueError, RuntimeError)

_Shapes = tuple[tuple[int, ...], ...]


class InterpreterEngine(Engine):
    """One interpreter, with tensors of its own: what is in the slots is copied."""

    def __init__(self, settings: EngineSettings, package: LiteRtPackage) -> None:
        options = dict(settings.options)
        self._settings = settings
        self._package = package
        self._delegate = options.pop("delegate", "")
        self._delegate_options = options
        self._delegates: list[Any] = []
        self._interpreter: Any = None
        self._inputs: tuple[int, ...] = ()
        self._outputs: tuple[int, ...] = ()
        self._open: _OpenRuns | None = None
        self._path = Path()

    def load(self, path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self._path = path
        is_open = any(spec.is_open for spec in (*inputs, *outputs))
        if is_open and self._delegate:
            refuse_open_sizes(path.name, (*inputs, *outputs), f"delegate {self._delegate}")
        if any(spec.is_open for spec in inputs) and self._settings.facts.keeps == VARIABLES:
            raise JobError(
                f"{path.name}: it keeps variables, which LiteRT clears when the sizes of inputs"
                " change: fix the sizes (build --shape)"
            )
        resized = self._build(inputs, only_delegates=bool(self._delegate))
        self._acceleration = self._count()
        if self._delegate and not self._acceleration.is_full:
            if not self._settings.allow_fallback:
                refuse_fallback(path.name, self._acceleration)
            # Once the delegate's own operators are known, XNNPACK may have the others.
            self._build(inputs)
        sizes = "shape_signature" if is_open or resized else "shape"
        matched_inputs = match_tensors(path.name, "input", inputs, self._tensors("input", sizes))
        # Sizes that follow from those of the inputs may be known after a run only.
        sizes = "" if resized and not is_open else sizes
        made = match_tensors(path.name, "output", outputs, self._tensors("output", sizes))
        self._inputs = tuple(tensor.number for tensor in matched_inputs)
        self._outputs = tuple(tensor.number for tensor in made)
        row_lists = self._row_lists()
        if is_open or ((resized or row_lists) and not self._delegate):
            sides, repeats = (self._inputs, self._outputs), self._settings.facts.keeps != VARIABLES
            self._open = _OpenRuns(
                self._interpreter, self._plain, sides, row_lists, repeats=repeats
            )

    def _plain(self, without_xnnpack: bool) -> Any:
        return self._package.interpreter(
            self._path, self._settings.threads, (), only_delegates=without_xnnpack
        )

    def _build(self, inputs: Sequence[Tensor], *, only_delegates: bool = False) -> bool:
        """Make the interpreter; return whether inputs were given other sizes than the file's."""
        self.close()
        if self._delegate:
            self._delegates = [self._package.load_delegate(self._delegate, self._delegate_options)]
        try:
            self._interpreter = self._package.interpreter(
                self._path, self._settings.threads, self._delegates, only_delegates=only_delegates
            )
            resized = _resize(self._interpreter, inputs)
            self._interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise JobError(f"{self._path.name}: {self._explain(error)}") from None
        return resized

    def _tensors(self, side: str, sizes: str) -> list[FileTensor]:
        """Return the inputs or outputs; ``sizes``: as they are called, empty if not known yet."""
        details = getattr(self._interpreter, f"get_{side}_details")()
        aliases: dict[int, str] = {}
        for key in list(self._interpreter.get_signature_list())[:1]:
            runner = self._interpreter.get_signature_runner(key)
            named = getattr(runner, f"get_{side}_details")().items()
            aliases = {int(item["index"]): name for name, item in named}
        shapes = [tuple(map(int, item[sizes])) if sizes else () for item in details]
        return [
            FileTensor(
                name=item["name"],
                dtype=np.dtype(item["dtype"]).name,
                shape=shape if shape or sizes == "shape" else None,
                number=int(item["index"]),
                alias=aliases.get(int(item["index"]), ""),
            )
            for item, shape in zip(details, shapes, strict=True)
        ]

    def _explain(self, error: Exception) -> str:
        name = self._package.name
        return missing_operator(error, name) or f"{name} cannot load it: {first_line(error)}"

    def _count(self) -> Acceleration:
        """Count the operators that delegates have replaced by nodes of their own."""
        by = Path(self._delegate).name if self._delegate else "XNNPACK"
        nodes = self._nodes()
        if nodes is None:
            return Acceleration(by, None, None)
        operators = [node for node in nodes if node["op_name"] != "DELEGATE"]
        partitions = [node for node in nodes if node["op_name"] == "DELEGATE"]
        taken = replaced_operators(operators, partitions)
        others = dict.fromkeys(
            node["op_name"] for number, node in enumerate(operators) if number not in taken
        )
        return Acceleration(by, len(taken), len(operators), len(partitions), tuple(others))

    def _nodes(self) -> list[dict[str, Any]] | None:
        """Return the operators, and those of delegates; ``None``: this package does not tell."""
        try:
            nodes: list[dict[str, Any]] = self._interpreter._get_ops_details()
        except AttributeError:  # the method is not public
            return None
        return nodes

    def _row_lists(self) -> tuple[int, ...]:
        """Return the numbers of the results of WHERE, which may have no rows."""
        return tuple(
            int(number)
            for node in self._nodes() or ()
            if node["op_name"] == "WHERE"
            for number in node["outputs"]
        )

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Slot]) -> None:
        if self._open is not None:
            self._open.run(inputs, outputs)
            return
        for number, values in zip(self._inputs, inputs, strict=True):
            _fill_input(self._interpreter, number, values)
        try:
            self._interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            # A delegate may have lost its accelerator; half a run may leave something.
            is_left = self._delegate or self._settings.facts.keeps or is_of_memory(error)
            kind = JobError if is_left else FrameError
            raise kind(f"{self._package.name}: {first_line(error)}") from None
        for number, target in zip(self._outputs, outputs, strict=True):
            copy_output(self._interpreter.tensor(number)(), target)

    def close(self) -> None:
        self._inputs = self._outputs = ()
        self._open = self._interpreter = None
        self._delegates = []


def missing_operator(error: Exception, package: str) -> str:
    """Return which operator a package lacks, if an interpreter failed for that; else nothing."""
    text = first_line(error)
    if match := _UNKNOWN_OPERATOR.search(text):
        return (
            f"needs {match[1]} version {match[2]}, which {package} does not know: install a"
            " newer one, or convert the model for this one"
        )
    if match := _UNRESOLVED_CUSTOM.search(text):
        return f"needs the custom operator {match[1]}, which {package} does not have"
    return ""


def replaced_operators(
    operators: Sequence[dict[str, Any]], partitions: Sequence[dict[str, Any]]
) -> set[int]:
    """Return which operators, by their places, lie between partitions' outputs and inputs.

    Both are nodes as the interpreter describes them; a delegate has put the partitions in.
    """
    maker = {
        int(tensor): number
        for number, operator in enumerate(operators)
        for tensor in operator["outputs"]
        if tensor >= 0  # inputs and outputs that are left out are all -1
    }
    taken: set[int] = set()
    for partition in partitions:
        inputs = {int(tensor) for tensor in partition["inputs"]}
        wanted = [int(tensor) for tensor in partition["outputs"]]
        while wanted:
            tensor = wanted.pop()
            number = maker.get(tensor)
            if tensor in inputs or number is None or number in taken:
                continue
            taken.add(number)
            wanted.extend(int(tensor) for tensor in operators[number]["inputs"])
    return taken


def _resize(interpreter: Any, inputs: Sequence[Tensor]) -> bool:
    """Give inputs of open size the job's size; return whether there were any."""
    shapes = {spec.name: spec.shape for spec in inputs}
    resized = False
    for details in interpreter.get_input_details():
        shape = shapes.get(details["name"], ())
        open_shape = tuple(int(size) for size in details["shape_signature"])
        fits = len(shape) == len(open_shape) and all(
            wanted in (size, -1) for size, wanted in zip(shape, open_shape, strict=True)
        )
        if -1 in open_shape and fits:
            interpreter.resize_tensor_input(details["index"], shape)
            resized = True
    return resized


class _OpenRuns:
    """Runs frames on one interpreter, which gets new sizes when a frame has others than the last.

    XNNPACK does not take tensors without elements: it fails, or gives them random sizes. So frames
    with such inputs, and those in which WHERE finds nothing, run on a second interpreter without
    it, which is made when it is needed first.
    """

    def __init__(
        self,
        interpreter: Any,
        make: Callable[[bool], Any],
        sides: tuple[Sequence[int], Sequence[int]],
        row_lists: Sequence[int],
        *,
        repeats: bool,
    ) -> None:
        """Take an interpreter, and what makes others (``True``: without XNNPACK).

        Args:
            sides: its numbers of inputs and outputs, in the job's order.
            row_lists: those of the results of WHERE, with a row for each element that was found.
            repeats: a frame may be run twice, and by interpreters in turn.
        """
        self._make, self._row_lists, self._repeats = make, row_lists, repeats
        self._inputs, self._outputs = sides
        self._usual: _SizedInterpreter | None = _SizedInterpreter(interpreter, self._inputs)
        self._plain: _SizedInterpreter | None = None

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Slot]) -> None:
        used = self._computed(inputs)
        for number, slot in zip(self._outputs, outputs, strict=True):
            copy_output(used.values(number), slot)

    def _computed(self, inputs: Sequence[NDArray[Any]]) -> _SizedInterpreter:
        if not self._repeats or all(values.size for values in inputs):
            try:
                self._usual = self._usual or self._sized(plain=False)
                self._usual.run(inputs)
                if not self._repeats or all(self._usual.values(n).size for n in self._row_lists):
                    return self._usual
            except _ERRORS as error:
                # Some of its tensors may have the sizes of another frame.
                self._usual = None
                if not self._repeats:
                    raise JobError(_failed(inputs, error)) from None
        try:
            self._plain = self._plain or self._sized(plain=True)
            self._plain.run(inputs)
        except _ERRORS as error:
            self._plain = None
            kind = FrameError if self._repeats and not is_of_memory(error) else JobError
            raise kind(_failed(inputs, error)) from None
        return self._plain

    def _sized(self, *, plain: bool) -> _SizedInterpreter:
        return _SizedInterpreter(self._make(plain), self._inputs)


class _SizedInterpreter:
    """An interpreter with the sizes of the frame that it ran last."""

    def __init__(self, interpreter: Any, inputs: Sequence[int]) -> None:
        self._interpreter, self._inputs = interpreter, inputs
        details = {item["index"]: item["shape"] for item in interpreter.get_input_details()}
        self._shapes: _Shapes = tuple(tuple(details[number].tolist()) for number in inputs)
        self._has_memory = False

    def run(self, inputs: Sequence[NDArray[Any]]) -> None:
        shapes = tuple(values.shape for values in inputs)
        if shapes != self._shapes or not self._has_memory:
            for number, old, new in zip(self._inputs, self._shapes, shapes, strict=True):
                if old != new:
                    self._interpreter.resize_tensor_input(number, new)
            self._interpreter.allocate_tensors()
            self._shapes, self._has_memory = shapes, True
        for number, values in zip(self._inputs, inputs, strict=True):
            _fill_input(self._interpreter, number, values)
        self._interpreter.invoke()

    def values(self, number: int) -> NDArray[Any]:
        """Return a view of a tensor; while it lives, the sizes cannot change."""
        try:
            return np.asarray(self._interpreter.tensor(number)())
        except ValueError:
            # It refuses what WHERE makes where it finds nothing.
            details = {item["index"]: item for item in self._interpreter.get_tensor_details()}
            if 0 in (shape := tuple(details[number]["shape"].tolist())):
                return np.empty(shape, details[number]["dtype"])
            raise


def _fill_input(interpreter: Any, number: int, values: NDArray[Any]) -> None:
    if values.shape:
        np.copyto(interpreter.tensor(number)(), values, casting="no")
    else:
        # An accessor gives the number itself, not the memory.
        interpreter.set_tensor(number, values)


def copy_output(values: NDArray[Any], slot: Slot) -> None:
    if isinstance(slot, OpenSlot):
        slot.write(values)
        return
    if values.shape != slot.shape:
        raise JobError(
            f"an output has the shape {list(values.shape)} now, the job says {list(slot.shape)}"
        )
    np.copyto(slot, values, casting="no")


def _failed(inputs: Sequence[NDArray[Any]], error: Exception) -> str:
    shapes = ", ".join(str(list(values.shape)) for values in inputs)
    return f"LiteRT cannot work on inputs of the shapes {shapes}: {first_line(error)}"
