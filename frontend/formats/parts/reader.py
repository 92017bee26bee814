"""A parts file as a :class:`Graph`: the layers of all parts, joined at their inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from rankslice.framework.engines import engines_for
from rankslice.framework.errors import (
    CollectedMistakes,
    Mistake,
    RankSliceError,
    nearest,
    raise_mistakes,
)
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.graph import Graph, Layer, ModelPart, Tensor, Weight
from rankslice.framework.wording import joined, quoted
from rankslice.frontend.formats.input_shapes import NO_SIZES, GivenSizes
from rankslice.frontend.formats.model_format import Model
from rankslice.frontend.formats.parts.conversion import read_part_file
from rankslice.frontend.formats.parts.layouts import (
    MAKERS,
    permuted,
    with_permuted_inputs,
    with_permuted_output,
)
from rankslice.frontend.formats.parts.spec import (
    LAYOUTS,
    Feed,
    PartsFile,
    PartSpec,
    parse_parts_yaml,
)
from rankslice.frontend.rewriting.regions import inverse


@dataclass(frozen=True)
class ReadPart:
    """A part's model, and what its tensors are called in the whole one."""

    part: ModelPart
    spec: PartSpec
    model: Model
    names: Mapping[str, str]
    """Name in the whole model, by the name in the file, where it is not ``part/name``."""
    outputs: Mapping[str, str]
    """Names of its outputs in the file, by those in the parts file."""

    @property
    def own_names(self) -> tuple[str, ...]:
        """Its inputs and outputs, as its file calls them."""
        graph = self.model.graph
        return tuple(tensor.name for tensor in (*graph.inputs, *graph.outputs))

    def whole(self, name: str) -> str:
        return self.names.get(name, f"{self.part.name}/{name}")

    @cached_property
    def own_tensors(self) -> dict[str, Tensor]:
        """The part's tensors as its file has them, by their names in the whole model."""
        return {self.whole(tensor.name): tensor for tensor in self.model.graph.tensors}

    @cached_property
    def own_layers(self) -> dict[str, Layer]:
        return {f"{self.part.name}/{layer.name}": layer for layer in self.model.graph.layers}


@dataclass(frozen=True)
class PartsModel:
    """A parts file that was read, with its models."""

    path: Path
    graph: Graph
    parts: tuple[ReadPart, ...]
    """Each after those from which it reads."""
    sizes: GivenSizes

    def part_of(self, layer: Layer) -> ReadPart:
        return next(read for read in self.parts if read.part == layer.part)


def parts_files(path: Path) -> tuple[Path, ...]:
    """Return the parts file and all model files that it names."""
    file = _parsed(path)
    return (path, *(_inside(path, name) for part in file.parts for name in part.files.values()))


def _parsed(path: Path) -> PartsFile:
    return parse_parts_yaml(read_text(path, "a parts"), path.name)


def _inside(path: Path, name: str) -> Path:
    """Return a file in the folder of the parts file; links must not lead out of it."""
    folder = path.resolve().parent
    file = folder / name
    if not file.resolve().is_relative_to(folder):
        found = f"{quoted(name)} is a link to a file outside of the folder of {path.name}"
        raise RankSliceError(Mistake(str(path), found, "copy the file into the folder"))
    return file


def read_parts(
    path: Path, sizes: GivenSizes = NO_SIZES, chosen: Mapping[str, str] | None = None
) -> PartsModel:
    """Return the model that a parts file makes of several files.

    Args:
        sizes: of the whole model's inputs. The inputs of other parts have the sizes of what
            feeds them.
        chosen: format of parts, where it is not the first one that the file has.

    Raises:
        RankSliceError: with all mistakes of the file and its models.
    """
    file = _parsed(path)
    joining = _Joining(path, file, sizes, chosen or {})
    mistakes = CollectedMistakes()
    for spec in file.parts:
        mistakes.catch(partial(joining.add, spec))
    mistakes.catch(lambda: raise_mistakes(joining.output_mistakes()))
    mistakes.raise_all()
    return PartsModel(path, joining.graph(), tuple(joining.parts.values()), sizes)


def for_engines(model: PartsModel, engines: Mapping[str, Collection[str]]) -> PartsModel:
    """Return the model with the first file of each part that its engines run.

    ``engines``: by the part's name; a part that is missing, or that has no such file, stays.
    """
    chosen: dict[str, str] = {}
    for read in model.parts:
        wanted = engines.get(read.part.name, ())
        fitting = (f for f in read.spec.files if {*wanted} <= {*engines_for(f)})
        chosen[read.part.name] = next(fitting, read.part.format)
    if chosen == {read.part.name: read.part.format for read in model.parts}:
        return model
    return read_parts(model.path, model.sizes, chosen)


class _Joining:
    """Reads one part after the other, each with the sizes that come from those before it."""

    def __init__(
        self, path: Path, file: PartsFile, sizes: GivenSizes, chosen: Mapping[str, str]
    ) -> None:
        self._path, self._file, self._sizes, self._chosen = path, file, sizes, chosen
        self.parts: dict[str, ReadPart] = {}
        self._failed: set[str] = set()
        self._tensors: dict[str, Tensor] = {}
        """What feeds parts, and the outputs, by the names in the whole model."""
        self._says: dict[str, str] = {}
        """Which file says of an input of the whole model what it is."""

    def add(self, spec: PartSpec) -> None:
        """Read a part, unless one fails that feeds it.

        Raises:
            RankSliceError: with all mistakes of this part.
        """
        if self._failed & {feed.part for feed in spec.inputs.values()}:
            self._failed.add(spec.name)
            return
        self._failed.add(spec.name)
        first = next(iter(spec.files))
        kind = self._chosen.get(spec.name, first)
        model = self._read(spec, _inside(self._path, spec.files[first]))
        outputs = {tensor.name: tensor.name for tensor in model.graph.outputs}
        if kind != first:
            model, spec, outputs = self._alternative(spec, kind, model)
        graph = model.graph
        raise_mistakes(self._input_mistakes(spec, graph))
        own = {tensor.name: tensor for tensor in graph.inputs}
        for name, feed in spec.inputs.items():
            if not feed.part and feed.tensor not in self._tensors:
                brought = permuted(own[name], inverse(feed.permutation), feed.tensor)
                self._tensors[feed.tensor] = brought
                self._says[feed.tensor] = f"{quoted(name)} of {spec.files[kind]}"
        raise_mistakes(self._joint_mistakes(spec, graph))
        named = {own: f"{spec.name}/{name}" for name, own in outputs.items() if name != own}
        named |= {
            outputs.get(f.tensor, f.tensor): name
            for name, f in self._file.outputs.items()
            if f.part == spec.name
        }
        fed = {name: self._whole(feed) for name, feed in spec.inputs.items()}
        changes = {name: feed for name, feed in spec.inputs.items() if feed.layout}
        if kind in MAKERS and changes:
            permutations = {name: feed.permutation for name, feed in changes.items()}
            model, renamed = with_permuted_inputs(model, permutations)
            fed = {renamed.get(name, name): whole for name, whole in fed.items()}
        else:
            fed |= {name: self._permuted(spec, name, feed) for name, feed in changes.items()}
        graph = model.graph
        part = ReadPart(ModelPart(spec.name, kind), spec, model, {**named, **fed}, outputs)
        for tensor in graph.outputs:
            whole = part.whole(tensor.name)
            self._tensors[whole] = replace(tensor, name=whole)
        self.parts[spec.name] = part
        self._failed.discard(spec.name)

    def _alternative(
        self, spec: PartSpec, kind: str, usual: Model
    ) -> tuple[Model, PartSpec, dict[str, str]]:
        """Return another file of a part, the names of its inputs, and those of its outputs."""
        model = read_part_file(_inside(self._path, spec.files[kind]))
        names: dict[str, str] = {}
        where = f"{self._path.name}: parts.{spec.name}"
        sides = ((g.inputs, g.outputs) for g in (usual.graph, model.graph))
        for one, other in zip(*sides, strict=True):
            if [*map(_kind, one)] != [*map(_kind, other)]:
                here, there = (joined([f"{t.name}: {_kind(t)}" for t in ts]) for ts in (one, other))
                found = f"{model.graph.name} has {there}, but {usual.graph.name} has {here}"
                raise RankSliceError(Mistake(where, found, "expected the same, in the same order"))
            names |= {t.name: o.name for t, o in zip(one, other, strict=True)}
        inputs = {names.get(name, name): feed for name, feed in spec.inputs.items()}
        outputs = {tensor.name: names[tensor.name] for tensor in usual.graph.outputs}
        made = {tensor.name for layer in model.graph.layers for tensor in layer.outputs}
        if taken := (made - {*outputs.values()}) & {*outputs}:
            found = f"its tensor {quoted(min(taken))} has the name of another file's output"
            raise RankSliceError(Mistake(where, found, "rename it"))
        return model, replace(spec, inputs=inputs), outputs

    def _permuted(self, spec: PartSpec, name: str, feed: Feed) -> str:
        """Let the part that feeds an input change the layout; return the name of the result."""
        where = f"{self._path.name}: parts.{spec.name}.layouts.{name}"
        source = self.parts.get(feed.part)
        if source is None or source.part.format not in MAKERS:
            found = f"only parts in {joined(MAKERS, 'or')} can change a layout"
            raise RankSliceError(Mistake(where, f"{found}, and neither side is one"))
        model, made = with_permuted_output(source.model, feed.tensor, feed.permutation)
        self.parts[feed.part] = source = replace(source, model=model)
        whole = source.whole(made.name)
        self._tensors[whole] = replace(made, name=whole)
        return whole

    def _whole(self, feed: Feed) -> str:
        """Return the name in the whole model of what feeds an input."""
        outputs = (name for name, output in self._file.outputs.items() if output.text == feed.text)
        return next(outputs, feed.text)

    def _read(self, spec: PartSpec, file: Path) -> Model:
        names = {f.text: name for name, f in spec.inputs.items() if not f.part}
        names |= {f"{spec.name}/{name}": name for name in spec.inputs}
        names |= {out: f.tensor for out, f in self._file.outputs.items() if f.part == spec.name}
        of_others = {f.text for part in self._file.parts for f in part.inputs.values()} - {*names}
        of_others |= {*self._file.outputs} - {*names}
        fixed, at_most = (
            {
                names.get(name, name.removeprefix(f"{spec.name}/")): shape
                for name, shape in sizes.items()
                if name not in of_others and (names.get(name) or self._may_name(name, spec))
            }
            for sizes in (self._sizes.fixed, self._sizes.at_most)
        )
        for name, feed in spec.inputs.items():
            source = self._tensors.get(self._whole(feed)) if feed.part else None
            if source is not None and source.shape is not None:
                (at_most if source.is_open else fixed)[name] = source.shape
            for sizes in (fixed, at_most):
                if feed.layout and len(sizes.get(name, ())) == len(feed.permutation):
                    sizes[name] = tuple(sizes[name][axis] for axis in feed.permutation)
        try:
            return read_part_file(file, GivenSizes(fixed, at_most))
        except RankSliceError:
            # If the file can be read as it is, what feeds it does not fit.
            if alone := CollectedMistakes().catch(partial(read_part_file, file)):
                raise_mistakes(self._input_mistakes(spec, alone.graph))
                raise_mistakes(self._joint_mistakes(spec, alone.graph))
            raise_mistakes(self._unfed_mistakes(spec))
            raise

    def _may_name(self, name: str, spec: PartSpec) -> bool:
        """Return whether a name may be that of a size, or of a tensor inside this part."""
        part, slash, _ = name.partition("/")
        if slash and any(part == other.name for other in self._file.parts):
            return part == spec.name
        return any(not feed.part for feed in spec.inputs.values())

    def _input_mistakes(self, spec: PartSpec, graph: Graph) -> Iterator[Mistake]:
        where = f"{self._path.name}: parts.{spec.name}.inputs"
        known = [tensor.name for tensor in graph.inputs]
        for name in spec.inputs:
            if name not in known:
                hint = nearest(name, known) or f"it has {joined([*map(quoted, known)])}"
                yield Mistake(where, f"{graph.name} has no input {quoted(name)}", hint)
        for name in known:
            if name not in spec.inputs:
                found = f"nothing feeds the input {quoted(name)} of {graph.name}"
                yield Mistake(where, found, "give an output of a part, or a name of your own")

    def _unfed_mistakes(self, spec: PartSpec) -> Iterator[Mistake]:
        for name, feed in spec.inputs.items():
            if feed.part and self._whole(feed) not in self._tensors:
                where = f"{self._path.name}: parts.{spec.name}.inputs.{name}"
                yield _no_output(where, feed.tensor, self.parts[feed.part])

    def _joint_mistakes(self, spec: PartSpec, graph: Graph) -> Iterator[Mistake]:
        """Yield the inputs that are of another type or shape than what feeds them."""
        yield from self._unfed_mistakes(spec)
        own = {tensor.name: tensor for tensor in graph.inputs}
        for name, feed in spec.inputs.items():
            where = f"{self._path.name}: parts.{spec.name}.inputs.{name}"
            source = self._tensors.get(self._whole(feed))
            if source is not None and len(source.shape or ()) < len(feed.permutation):
                found = f"{quoted(feed.tensor)} has no four dimensions: {_kind(source)}"
                yield Mistake(where, f"{found}, so it has no layout {feed.layout}")
            elif source is not None and (
                _kind(permuted(source, feed.permutation)) != _kind(own[name])
            ):
                says = self._says.get(feed.tensor, feed.tensor)
                if maker := self.parts.get(feed.part):
                    says = f"{quoted(feed.tensor)} of {maker.model.graph.name}"
                found = f"{says} is {_kind(source)}, but {quoted(name)} of {graph.name} is"
                expected = "expected the same" + (f" after {feed.layout}" if feed.layout else "")
                fitting = [
                    layout
                    for layout, axes in LAYOUTS.items()
                    if not feed.layout and len(source.shape or ()) == len(axes)
                    if _kind(permuted(source, axes)) == _kind(own[name])
                ]
                hint = f": layouts: {{{name}: {fitting[0]}}} changes it" if fitting else ""
                yield Mistake(where, f"{found} {_kind(own[name])}", expected + hint)

    def output_mistakes(self) -> Iterator[Mistake]:
        wanted = [(f"outputs.{name}", feed) for name, feed in self._file.outputs.items()]
        wanted += [
            (f"parts.{part.name}.inputs.{name}", feed)
            for part in self._file.parts
            for name, feed in part.inputs.items()
        ]
        for path, feed in wanted:
            if feed.part not in self.parts:
                continue
            part, where = self.parts[feed.part], f"{self._path.name}: {path}"
            graph, own = part.model.graph, part.outputs.get(feed.tensor)
            made = {tensor.name for layer in graph.layers for tensor in layer.outputs}
            if own is None:
                if path.startswith("outputs"):
                    yield _no_output(where, feed.tensor, part)
            elif own not in made:
                yield Mistake(where, f"no layer of {graph.name} makes {quoted(feed.tensor)}")

    def graph(self) -> Graph:
        parts = [*self.parts.values()]
        feeds = [feed for part in parts for feed in part.spec.inputs.values()]
        brought = dict.fromkeys(feed.tensor for feed in feeds if not feed.part)
        layers = [layer for part in parts for layer in _Renaming(part, self._tensors).layers()]
        return Graph(
            name=self._path.name,
            format="yaml",
            layers=tuple(layers),
            inputs=tuple(self._tensors[name] for name in brought),
            outputs=tuple(self._tensors[name] for name in self._file.outputs),
            weights=tuple(dict.fromkeys(weight for layer in layers for weight in layer.weights)),
            bonds=tuple(
                replace(bond, layers=tuple(f"{part.part.name}/{name}" for name in bond.layers))
                for part in parts
                for bond in part.model.graph.bonds
            ),
            warnings=tuple(text for part in parts for text in part.model.graph.warnings),
            quantised=tuple(
                {
                    whole: replace(entry, name=whole)
                    for part in reversed(parts)
                    for entry in part.model.graph.quantised
                    if (whole := part.whole(entry.name)) in brought
                }.values()
            ),
        )


class _Renaming:
    """Gives the layers of a part the names that they have in the whole model."""

    def __init__(self, part: ReadPart, tensors: Mapping[str, Tensor]) -> None:
        self._part = part
        self._known: dict[str, Tensor] = dict(tensors)
        self._weights: dict[str, Weight] = {}

    def layers(self) -> Iterator[Layer]:
        for name, layer in self._part.own_layers.items():
            own = layer.with_tensors(self._tensor, self._tensor, self._weight)
            yield replace(own, name=name, part=self._part.part)

    def _tensor(self, tensor: Tensor) -> Tensor:
        name = self._part.whole(tensor.name)
        return self._known.setdefault(name, replace(tensor, name=name))

    def _weight(self, weight: Weight) -> Weight:
        name = f"{self._part.part.name}/{weight.name}"
        return self._weights.setdefault(name, replace(weight, name=name))


def _kind(tensor: Tensor) -> str:
    """Write type and shape of a tensor: ``int8 [1, 8, 8, 3]``; open sizes as ``<=8``."""
    if tensor.shape is None:
        return f"{tensor.dtype} of unknown shape"
    symbols = tensor.symbols or ("",) * len(tensor.shape)
    pairs = zip(tensor.shape, symbols, strict=True)
    sizes = ", ".join(f"<={size}" if symbol else str(size) for size, symbol in pairs)
    return f"{tensor.dtype} [{sizes}]"


def _no_output(where: str, name: str, part: ReadPart) -> Mistake:
    known = [*part.outputs]
    hint = nearest(name, known) or f"it has {joined([*map(quoted, known)])}"
    return Mistake(where, f"{part.model.graph.name} has no output {quoted(name)}", hint)
