"""Which tensor of a file is which of the plan."""

from __future__ import annotations

import pytest

from rankslice.backend.runtime.engines import FileTensor, match_tensors
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor


def planned(*names: str) -> list[Tensor]:
    return [Tensor(name, "float32", (1,)) for name in names]


def in_file(*names: str, aliases: tuple[str, ...] = ()) -> list[FileTensor]:
    return [
        FileTensor(name, "float32", (1,), number, aliases[number] if aliases else "")
        for number, name in enumerate(names)
    ]


def order(plan: list[Tensor], present: list[FileTensor], side: str = "input") -> list[int]:
    return [tensor.number for tensor in match_tensors("f.tflite", side, plan, present)]


def refusal(plan: list[Tensor], present: list[FileTensor], side: str = "input") -> str:
    with pytest.raises(JobError) as error:
        order(plan, present, side)
    return str(error.value)


def test_names_decide_whatever_the_order_is() -> None:
    assert [2, 0, 1] == order(planned("c", "a", "b"), in_file("a", "b", "c"))


def test_names_of_the_signature_do_where_the_tensors_names_do_not() -> None:
    present = in_file("a:0", "b:0", aliases=("a", "b"))
    assert [1, 0] == order(planned("b", "a"), present)
    assert [1, 0] == order(planned("b:0", "a"), present)


def test_tensors_of_one_name_and_nameless_ones_come_in_their_order() -> None:
    assert [0, 1, 2] == order(planned("x", "x.1", "y"), in_file("x", "x", "y"))
    assert [1, 0, 2] == order(planned("y", "first", "second"), in_file("", "y", ""))


def test_a_tensor_with_a_name_of_its_own_is_never_taken_for_another() -> None:
    message = refusal(planned("a", "b"), in_file("a", "c"))
    assert "f.tflite: has no input 'b'; it has 'a', 'c'" == message


def test_outputs_that_nobody_wants_may_be_there_and_inputs_may_not() -> None:
    assert [1] == order(planned("b"), in_file("a", "b"), "output")
    message = refusal(planned("b"), in_file("a", "b"))
    assert "f.tflite: needs input 'a', which the job lacks" == message


def test_types_and_shapes_have_to_be_the_plans() -> None:
    plan = [Tensor("a", "int8", (1, 2))]
    message = refusal(plan, in_file("a"), "output")
    assert "f.tflite: output 'a' is float32[1], the job says int8[1, 2]" == message
