"""A graph captured by `torch.compile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from compiler.frontend.torch.contents import Contents, real_view
from dialects.records import dataclass


@dataclass(frozen=True)
class CapturedGraph:
    """A graph of Core ATen without mutations, as `torch.compile` produces it.

    `weights`: placeholder -> a tensor that is constant as long as any code compiled from the graph
    is in use; but the contents of `parameters` among them may be replaced. `results`: the indices
    of the outputs that the function returns. `identity`: what the graph says, but for the contents
    of parameters; empty if programs of it are not to be found again. `negative`: the placeholders
    of integers that are negative in every call of the code.
    """

    module: Any
    weights: Mapping[str, Any]
    results: Sequence[int]
    parameters: frozenset[str] = frozenset()
    identity: str = ""
    negative: frozenset[str] = frozenset()

    def values(self) -> Contents:
        """The contents of the parameters, by name, each read when it is asked for. Raises Fault
        for one that is not supported."""
        return Contents(self.weights, self.parameters)

    def tensors(self) -> Mapping[str, Any]:
        """The weights that lie on a GPU, where compiled code may read them in place, by name."""
        return tensors_of(self.weights)


def tensors_of(weights: Mapping[str, Any]) -> dict[str, Any]:
    """The weights that lie on a GPU, where compiled code may read them in place, by name."""
    return {name: real_view(tensor).resolve_neg().detach() for name, tensor in weights.items()
            if tensor.is_cuda}


def output_nodes(graph: Any) -> list[Any]:
    """The results of a graph module: nodes and constants."""
    found = next(n for n in graph.graph.nodes if n.op == "output").args[0]
    return list(cast(Sequence[Any], found)) if isinstance(found, (list, tuple)) else [found]


# ---------------------------------------------------------------------- arguments
def is_integer(node: Any) -> bool:
    """Whether a node of a graph is an argument that is an integer."""
    return node.op == "placeholder" and type(node.meta.get("val")).__name__ == "SymInt"


def free_symbols(graph: Any) -> set[str]:
    """The SymPy symbols in the shapes of a graph's inputs."""
    shapes = [n.meta["val"].shape for n in graph.nodes
              if n.op == "placeholder" and hasattr(n.meta.get("val"), "dtype")]
    return {str(s) for shape in shapes for size in shape if not isinstance(size, int)
            for s in size.node.expr.free_symbols}


def given_symbols(graph: Any) -> set[str]:
    """The SymPy symbols that a graph's inputs tell: those of shapes, and integers."""
    integers = [n.meta["val"].node.expr for n in graph.nodes if is_integer(n)]
    return free_symbols(graph) | {str(expr) for expr in integers if expr.is_Symbol}
