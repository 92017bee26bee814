"""onnxruntime on CPU cores or an execution provider, reading and writing the slots in place."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from ..errors import FrameError, JobError, is_of_memory
from ..figures.acceleration import Acceleration, refuse_fallback
from ..figures.operator_profile import OperatorSpans, read_profile
from ..job import Tensor
from ..process_setup import bind_to_cores
from ..sizes import OpenSlot, Slot
from . import Engine, EngineSettings, FileTensor, match_tensors
from .cuda_stream import CudaError
from .onnxruntime_cuda import BUFFERS, GRAPH, CudaFrames
from .onnxruntime_package import load_onnxruntime, memory_of
from .onnxruntime_providers import (
    CPU,
    ENTRIES,
    SESSION_OPTIONS,
    Provider,
    check_options as check_options,
    count_operators,
    find_provider,
    qnn_profile,
    session_value,
    with_profile,
)

_TYPES = {"float": "float32", "double": "float64"}
"""onnxruntime's names of types -> ours, where they differ."""

_OPEN_SIZES = "its sizes change from frame to frame"
"""Why such a session is not bound to buffers once and for all."""

_MAX_KNOWN = 4096
"""Combinations of the inputs' shapes for which the outputs' shapes are remembered."""

_Shapes: TypeAlias = tuple[tuple[int, ...], ...]


def version() -> str:
    return f"onnxruntime {load_onnxruntime().__version__}"


def open_engine(settings: EngineSettings) -> OnnxRuntimeEngine:
    """Return the engine for ``settings.threads`` threads.

    Options: ``provider``, an execution provider, and that provider's own options.

    Raises:
        JobError: the provider is unknown, or not there.
    """
    return OnnxRuntimeEngine(settings)


class OnnxRuntimeEngine(Engine):
    """One inference session, bound to slots without copies; on CUDA to buffers on the GPU."""

    def __init__(self, settings: EngineSettings) -> None:
        self._onnxruntime = onnxruntime = load_onnxruntime()
        self._settings = settings
        self._provider = find_provider(onnxruntime, settings)
        if settings.profile:
            self._provider = with_profile(self._provider, settings.profile)
        self._session: Any = None
        self._inputs: Sequence[Tensor] = ()
        self._outputs: Sequence[Tensor] = ()
        self._is_whole = False
        """Whether a version that does not count operators would leave none to the CPU."""
        self._path = Path()
        self._cuda = CudaFrames(self._provider.options) if self._provider.is_cuda else None
        self._open: _OpenRuns | None = None

    def load(self, path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self._path = path
        self._inputs, self._outputs = inputs, outputs
        if any(spec.is_open for spec in (*inputs, *outputs)):
            self._open = _OpenRuns(inputs, outputs, predicts=not self._settings.facts.keeps)
        if self._cuda is not None and (reason := self._why_no_graph()):
            self._cuda.leave_out(GRAPH, reason)
        self._start()
        if not self._provider.is_cpu:
            # Drivers in software choose cores for their threads themselves.
            bind_to_cores(sorted(os.sched_getaffinity(0)))
            self._acceleration = self._count()
        names = {spec.name for spec in inputs}
        defaults = self._session.get_overridable_initializers()
        brought = [*self._session.get_inputs(), *(arg for arg in defaults if arg.name in names)]
        match_tensors(path.name, "input", inputs, [_file_tensor(arg) for arg in brought])
        made = [_file_tensor(arg, is_output=True) for arg in self._session.get_outputs()]
        match_tensors(path.name, "output", outputs, made)
        if self._cuda is not None:
            self._bind_buffers(self._cuda)

    def _why_no_graph(self) -> str:
        """Return why the sub-model must not be a CUDA graph; empty: it may, as far as is known."""
        if self._settings.exact:
            return "--verify exact"
        if self._open is not None:
            return _OPEN_SIZES
        # The first run of a graph computes several times, and a random number would be repeated.
        facts = self._settings.facts
        return facts.keeps or (f"it has {facts.control_flow}" if facts.control_flow else "")

    def _start(self) -> None:
        if self._cuda is not None:
            self._cuda.open()
        while True:
            try:
                self._session = self._create_session()
                return
            except JobError as error:
                if self._cuda is None or not self._cuda.give_up(str(error)):
                    raise

    def _bind_buffers(self, cuda: CudaFrames) -> None:
        if not cuda.has(BUFFERS):
            return
        reason = "" if cuda.has(GRAPH) else self._why_no_buffers()
        if not reason:
            try:
                cuda.bind(self._onnxruntime, self._session, self._inputs, self._outputs)
            except CudaError as error:
                reason = str(error)
        if reason:
            self._restart(cuda, BUFFERS, reason)

    def _restart(self, cuda: CudaFrames, name: str, reason: str) -> None:
        self.close()
        cuda.leave_out(name, reason)
        self._start()
        self._bind_buffers(cuda)

    def _why_no_buffers(self) -> str:
        """Return why onnxruntime must copy: it may do so for operators on the CPU, too."""
        if self._open is not None:
            return _OPEN_SIZES
        acceleration = self._acceleration
        if self._is_whole or acceleration is None or acceleration.is_full:
            return ""
        if acceleration.operators is None:
            return (
                f"onnxruntime {self._onnxruntime.__version__} does not report what runs on the CPU"
            )
        return f"on the CPU: {', '.join(acceleration.others)}"

    def _create_session(self, *, refuses_cpu: bool = False) -> Any:
        options = session_options(self._onnxruntime, self._settings)
        if refuses_cpu:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        provider = self._provider
        if self._cuda is not None:
            provider = replace(provider, options=self._cuda.session_options())
        return create_session(self._onnxruntime, self._path, options, provider)

    def _count(self) -> Acceleration:
        """Count the operators that the provider runs; raise if it must run all and does not."""
        acceleration = count_operators(self._session, self._provider, self._path)
        if self._settings.accelerator == "cpu" or self._settings.allow_fallback:
            return acceleration
        if acceleration.operators is not None:
            refuse_fallback(self._path.name, acceleration)
            return acceleration
        # This version does not tell which operators are where, but it can refuse.
        try:
            self._session = self._create_session(refuses_cpu=True)
            self._is_whole = True
        except JobError:
            refuse_fallback(self._path.name, acceleration)
        return acceleration

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Any]) -> None:
        try:
            self.bind(inputs, outputs)()
        except RuntimeError as error:
            raise self.failure(error) from None

    def bind(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Any]) -> Callable[[], None]:
        if self._open is not None:
            return partial(self._open.run, self._session, inputs, outputs)
        if self._cuda is not None and self._cuda.is_bound:
            return partial(self._run_buffers, self._cuda, inputs, outputs)
        return self._bind_slots(inputs, outputs)

    def failure(self, error: RuntimeError) -> Exception:
        """Return the exception for a failed run, whose errors are all of this type."""
        # Others than the CPU may have lost their accelerator; half a run may leave something.
        if not self._provider.is_cpu or is_of_memory(error) or self._settings.facts.keeps:
            return error
        return FrameError(f"{type(error).__name__}: {error}")

    def _run_buffers(
        self, cuda: CudaFrames, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]
    ) -> None:
        if not cuda.is_bound:
            self._bind_slots(inputs, outputs)()
        elif reason := cuda.run(inputs, outputs):
            self._restart(cuda, GRAPH, reason)
            self._run_buffers(cuda, inputs, outputs)

    def _bind_slots(
        self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]
    ) -> Callable[[], None]:
        session, binding = self._session, self._session.io_binding()
        self._bind_inputs(binding, inputs)
        for spec, array in zip(self._outputs, outputs, strict=True):
            binding.bind_output(*memory_of(spec, array.ctypes.data))
        if self._provider.is_cpu:
            return partial(session.run_with_iobinding, binding)

        def run() -> None:
            # A device with memory of its own has copied the inputs when they were bound.
            self._bind_inputs(binding, inputs)
            session.run_with_iobinding(binding)

        return run

    def _bind_inputs(self, binding: Any, inputs: Sequence[NDArray[Any]]) -> None:
        for spec, array in zip(self._inputs, inputs, strict=True):
            binding.bind_input(*memory_of(spec, array.ctypes.data))

    def warm_up_hindrance(self) -> str:
        """Say whether zeros may divide: versions before 1.32 then end the process on a CPU."""
        divides = self._settings.facts.divides and self._provider.is_cpu
        return "it may divide integers by zero" if divides else ""

    def acceleration(self) -> Acceleration | None:
        if self._acceleration is None or self._cuda is None:
            return self._acceleration
        return replace(self._acceleration, uses=self._cuda.uses(), without=dict(self._cuda.without))

    def operators(self) -> OperatorSpans | None:
        if not self._settings.profile or self._session is None:
            return None
        path = Path(self._session.end_profiling())
        qnn = qnn_profile(self._settings.profile)
        try:
            return read_profile(path, qnn)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise JobError(f"{path.name}: onnxruntime's profile cannot be read: {error}") from None
        finally:
            path.unlink(missing_ok=True)
            qnn.unlink(missing_ok=True)

    def close(self) -> None:
        self._session = None
        if self._cuda is not None:
            self._cuda.close()


def session_options(onnxruntime: Any, settings: EngineSettings) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what fails is raised
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if settings.exact:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for name, text in settings.options.items():
        if name in SESSION_OPTIONS:
            setattr(options, name, session_value(name, text))
        elif name.startswith(ENTRIES):
            options.add_session_config_entry(name, text)
    if options.inter_op_num_threads > 1:
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    if settings.profile:
        options.enable_profiling = True
        options.profile_file_prefix = settings.profile
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def create_session(onnxruntime: Any, path: Path, options: Any, provider: Provider) -> Any:
    """Return the session of a model on an execution provider, and the CPU where that cannot."""
    try:
        providers: list[Any] = [(provider.name, provider.options)]
        if provider.is_cpu:
            providers = [CPU]
        elif provider.device is not None:
            options.add_provider_for_devices([provider.device], provider.options)
            providers = []  # there must be none, as the options have it
        return onnxruntime.InferenceSession(
            str(path), options, providers=providers, enable_fallback=0
        )
    except Exception as error:  # onnxruntime's exceptions have no common base class
        reason = " ".join(str(error).split())
        raise JobError(f"{path.name}: onnxruntime cannot load it: {reason}") from None


def _file_tensor(arg: Any, *, is_output: bool = False) -> FileTensor:
    """Return an input or output as the file has it.

    Models that were not sliced may leave sizes open. An output of which nothing is known looks
    like a scalar; onnxruntime compares what comes out with the memory that it was given.
    """
    name = arg.type.removeprefix("tensor(").removesuffix(")")
    sizes = tuple(size if isinstance(size, int) else -1 for size in arg.shape)
    return FileTensor(arg.name, _TYPES.get(name, name), None if is_output and not sizes else sizes)


class _OpenRuns:
    """Binds each frame's slots in the shapes of that frame.

    An output takes its slot's memory only if its shape is known before the run. onnxruntime makes
    the others, and they are copied. Where shapes follow from those of the inputs, they are known
    from an earlier frame of the same shapes. Whether they do shows at a frame of which they were
    predicted wrongly: onnxruntime refuses the memory, the frame is run again, and nothing is
    predicted any more.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        *,
        predicts: bool,
    ) -> None:
        """Take what the session reads and makes; ``predicts``: a frame may be run twice."""
        self._inputs, self._outputs = inputs, outputs
        # If all inputs are fixed, data decide the sizes of the outputs.
        self._predicts = predicts and any(spec.is_open for spec in inputs)
        self._known: dict[_Shapes, _Shapes] = {}

    def run(self, session: Any, inputs: Sequence[NDArray[Any]], outputs: Sequence[Slot]) -> None:
        shapes = tuple(values.shape for values in inputs)
        predicted = self._known.get(shapes) if self._predicts else None
        if predicted is not None:
            with suppress(Exception):  # onnxruntime's exceptions have no common base class
                self._run(session, inputs, outputs, predicted)
                return
        made = self._run(session, inputs, outputs, None)
        if predicted is not None:  # and wrongly, as the same values are no error now
            self._predicts = False
            self._known.clear()
        if self._predicts and len(self._known) < _MAX_KNOWN:
            self._known[shapes] = made

    def _run(
        self,
        session: Any,
        inputs: Sequence[NDArray[Any]],
        outputs: Sequence[Slot],
        predicted: _Shapes | None,
    ) -> _Shapes:
        binding = session.io_binding()
        for spec, values in zip(self._inputs, inputs, strict=True):
            binding.bind_input(*memory_of(spec, values.ctypes.data, values.shape))
        shapes = predicted or tuple(
            () if isinstance(slot, OpenSlot) else spec.shape
            for spec, slot in zip(self._outputs, outputs, strict=True)
        )
        made: list[tuple[int, OpenSlot]] = []
        for number, (spec, slot, shape) in enumerate(
            zip(self._outputs, outputs, shapes, strict=True)
        ):
            if isinstance(slot, OpenSlot) and predicted is None:
                binding.bind_output(spec.name, "cpu")
                made.append((number, slot))
                continue
            values = slot.shaped(shape) if isinstance(slot, OpenSlot) else slot
            binding.bind_output(*memory_of(spec, values.ctypes.data, shape))
        session.run_with_iobinding(binding)
        shapes_made = list(shapes)
        values_made = binding.get_outputs() if made else ()
        for number, slot in made:
            shapes_made[number] = _copy(values_made[number], slot)
        return tuple(shapes_made)


def _copy(made: Any, slot: OpenSlot) -> tuple[int, ...]:
    shape = tuple(made.shape())
    target = slot.shaped(shape)
    ctypes.memmove(target.ctypes.data, made.data_ptr(), target.nbytes)
    return shape
