"""How a model is profiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rankslice.backend.runtime.options import Preprocessing
from rankslice.framework.option_records import accelerator_keys, option
from rankslice.session.shared_options import OpenSizes


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What is measured, and how."""

    accelerators: tuple[str, ...] = option(
        (),
        "Mapping keys to measure (default: all cores of each CPU, each GPU, each NPU).",
        accelerator_keys,
        metavar="KEY,KEY,...",
    )
    per_core: bool = option(False, "Measure single CPU cores instead of all cores together.")
    alone: bool = option(
        False,
        "Keep the board's other accelerators idle (default: they compute, as in a pipeline).",
    )
    fresh: bool = option(False, "Discard existing measurements.", excludes=("again",))
    again: bool = option(
        False,
        "Repeat all measurements and keep the existing ones, for machines whose speed varies.",
    )
    refine: bool = option(
        True,
        "Also measure the slices of the fastest pipeline until prediction and measurement agree.",
        has_both=True,
    )
    input: tuple[str, ...] = option(
        (),
        "Representative frames for a model whose sizes change: files or a folder, as for 'run'."
        " Default: random values of the largest sizes.",
        str,
        many=tuple,
    )
    seconds: float | None = option(
        None,
        "Time limit in seconds: the most informative slices are measured first.",
        float,
        least=1,
    )
    venv: bool = option(False, "Also create the Python environment on each board.")
    wheels: str = option(
        "",
        "Like --venv, for boards without internet access: from a folder of wheels, or from wheels"
        " that this machine downloads.",
        str,
        metavar="DIR|download",
        is_executed=True,
    )
    sizes: OpenSizes = field(default_factory=OpenSizes)
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    """Of images among the frames."""
    ssh_config: Path | None = None
