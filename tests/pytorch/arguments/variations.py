"""Calls of operators with arguments at other values than in their samples.

An operator's schema gives the type of each argument, and the type gives values to try. A value
counts if eager PyTorch accepts it and it differs from that of the sample.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.pytorch.op_samples import FIRST_ONLY

DTYPES = (torch.float64, torch.float32, torch.float16, torch.int32, torch.bool)
BY_NAME: dict[str, tuple[Any, ...]] = {
    "approximate": ("tanh",), "rounding_mode": ("floor", "trunc"),
    "mode": ("reflect", "replicate", "circular"),
    "reduce": ("sum", "prod", "mean", "amax", "amin", "add", "multiply"),
    "scale": (0.5, 2.25),  # for others, PyTorch's kernels of attention differ from each other
}
"""Values for arguments of these names, instead of those for their types."""


def find(name: str) -> Any:
    """The operator of a full name."""
    found = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


@dataclass
class Call:
    """An operator and its arguments, in the order of its schema."""

    op: Any
    arguments: list[Any]

    @staticmethod
    def of(name: str, given: tuple[Any, ...]) -> Call:
        op = find(name)
        keywords = given[-1] if given and isinstance(given[-1], dict) else {}
        plain = given[:-1] if keywords else given
        arguments = [plain[k] if k < len(plain) else keywords.get(a.name, a.default_value)
                     for k, a in enumerate(op._schema.arguments)]
        return Call(op, arguments)

    @property
    def text(self) -> str:
        """The name of the operator, and its arguments in short."""
        return f"{self.op}({', '.join(map(_short, self.arguments))})"

    def at(self, place: int, value: Any) -> Call:
        """The call with another value for one argument."""
        return Call(self.op, [*self.arguments[:place], value, *self.arguments[place + 1:]])

    def placed(self, arguments: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """These arguments as positional ones and ones by keyword."""
        schema = self.op._schema.arguments
        plain = [v for a, v in zip(schema, arguments, strict=True) if not a.kwarg_only]
        named = {a.name: v for a, v in zip(schema, arguments, strict=True) if a.kwarg_only}
        return plain, named

    def eager(self) -> Any:
        """What PyTorch computes. Raises what it raises."""
        tree = torch.utils._pytree
        copied = tree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v,
                               self.arguments)
        plain, named = self.placed(copied)
        return self.op(*plain, **named)

    def graph(self) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
        """A graph of this call alone, and the tensors that are its inputs."""
        graph, inputs = torch.fx.Graph(), list[torch.Tensor]()

        def node_of(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            node = graph.placeholder(f"x{len(inputs)}")
            node.meta["val"] = value
            inputs.append(value)
            return node

        plain, named = self.placed(torch.utils._pytree.tree_map(node_of, self.arguments))
        call = graph.call_function(self.op, tuple(plain), named)
        return _returning(graph, call, self.eager()), inputs


def _returning(
    graph: torch.fx.Graph, call: torch.fx.Node, result: Any
) -> torch.fx.GraphModule:
    """A module of the graph, which returns the tensors among the results of its call."""
    call.meta["val"] = result
    outputs = [call]
    if isinstance(result, (tuple, list)):
        outputs = [graph.call_function(operator.getitem, (call, k)) for k in range(len(result))
                   if not k or str(call.target) not in FIRST_ONLY]
        for k, output in enumerate(outputs):
            output.meta["val"] = call.meta["val"][k]
    graph.output(tuple(outputs))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_short, value))}]"
    return str(value)


# ---------------------------------------------------------------------- other values
def other_values(argument: Any, value: Any) -> Iterator[Any]:
    """Values to try for an argument of a schema instead of the given one."""
    for found in _of_type(str(argument.real_type), argument.name, value):
        if type(found) is not type(value) or found != value:
            yield found


def _of_type(kind: str, name: str, value: Any) -> Iterator[Any]:
    base = kind.removeprefix("Optional[").removesuffix("]") if "Optional[" in kind else kind
    if base != kind and value is not None:
        yield None
    if base in ("List[int]", "List[SymInt]", "List[float]"):
        yield from _lists(value, float if "float" in base else int)
    else:
        yield from BY_NAME.get(name) or _BY_TYPE.get(base, ())


_BY_TYPE: dict[str, tuple[Any, ...]] = {
    "bool": (True, False), "int": (0, 1, 2, -1, 3), "SymInt": (0, 1, 2, -1, 3),
    "float": (0.5, 2.25, -1.5, 0.0), "number": (2, 0.5, -1.5, True, 0, math.nan),
    "ScalarType": DTYPES,
}


def _lists(value: Any, kind: type) -> Iterator[Any]:
    """Lists of numbers: the given one with its numbers changed, or short ones if it is empty.

    Longer lists are not tried: some of PyTorch's kernels read beyond their ends.
    """
    given = value or []
    for step in (1, -1, 2):
        yield [kind(v + step) for v in given]
    yield [kind(v * 2) for v in given]
    yield [kind(v) for v in given[::-1]]
    if len(given) < 2:
        yield from ([kind(v)] for v in (0, 1, 2))
        yield [kind(v) for v in (0, 1)]
