"""YAML to plain data, limited to the form that specs need."""

from __future__ import annotations

import yaml
from yaml.reader import ReaderError

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.wording import bare, quoted


class _AliasError(yaml.MarkedYAMLError):
    """The text has an alias."""


class _Loader(yaml.BaseLoader):
    """Reads every value as text, and rejects aliases.

    So nothing is executed, ``1.10`` stays a host name, ``no`` stays an account, and a small
    file cannot expand to a huge one.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            problem = f"found the alias *{bare(event.anchor)}"
            raise _AliasError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)


def read_yaml(text: str, name: str, shape: str) -> object:
    """Return the text's data: dictionaries, lists, strings, and ``None`` for what is empty.

    Args:
        shape: what the file should hold, for messages.

    Raises:
        RankSliceError: The text is not YAML, has an alias, or has a key twice.
    """
    try:
        node = yaml.compose(text, Loader=_Loader)
        mistakes: list[Mistake] = []
        data = _plain(node, name, ": ", mistakes)
    except yaml.YAMLError as error:
        raise RankSliceError(_syntax_mistake(error, text, name)) from None
    except RecursionError:
        raise RankSliceError(Mistake(name, "lists are nested too deeply", shape)) from None
    raise_mistakes(mistakes)
    return data


def _syntax_mistake(error: yaml.YAMLError, text: str, name: str) -> Mistake:
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        found = f"{quoted(text[error.position])} is not allowed in YAML"
        return Mistake(f"{name}: line {line}", found, "remove it")
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "something is wrong"
    where = f"{name}: line {mark.line + 1}, column {mark.column + 1}" if mark else name
    if isinstance(error, _AliasError):
        return Mistake(where, problem, "write the value itself")
    if problem == "but found another document":
        return Mistake(where, "a second document begins", "expected only one")
    if "'\\t'" in problem:
        return Mistake(where, "found a tab", "expected spaces before the first letter of a line")
    expected, but, found = problem.replace("but got", "but found").partition(", but found ")
    if but:
        value = expected.replace("the node content", "a value")
        return Mistake(where, f"invalid YAML: found {found}", value)
    return Mistake(where, f"invalid YAML: {problem}")


def _plain(node: yaml.Node | None, path: str, joint: str, mistakes: list[Mistake]) -> object:
    if isinstance(node, yaml.SequenceNode):
        items = enumerate(node.value)
        return [_plain(item, f"{path}[{index}]", joint, mistakes) for index, item in items]
    if isinstance(node, yaml.MappingNode):
        return _plain_mapping(node, path, joint, mistakes)
    if not isinstance(node, yaml.ScalarNode):
        return None
    is_empty = node.style is None and node.value.lower() in ("", "~", "null")
    return None if is_empty else str(node.value)


def _plain_mapping(
    node: yaml.MappingNode, path: str, joint: str, mistakes: list[Mistake]
) -> dict[str, object]:
    data: dict[str, object] = {}
    for key_node, value_node in node.value:
        line = f"line {key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            mistakes.append(Mistake(path, f"the key in {line} is not a name", "expected text"))
            continue
        where = f"{path}{joint}{bare(key_node.value)}"
        if key_node.value in data:
            mistakes.append(Mistake(where, f"appears again in {line}", "expected every key once"))
        data[key_node.value] = _plain(value_node, where, ".", mistakes)
    return data
