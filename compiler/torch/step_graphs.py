"""The graphs of one step of training, and what they were given: for `verify --gradients`.

PyTorch derives and runs the graphs as `torch.compile` would, but in eager mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from compiler.diagnostics import Problem, StrataError
from compiler.frontend import MemoryModel
from compiler.frontend.torch.captured_graph import CapturedGraph, output_nodes
from compiler.frontend.torch.contents import contents_of
from compiler.frontend.torch.library import torch_module
from compiler.torch.backend import Program, compiled_by
from compiler.torch.parts import MODEL

if TYPE_CHECKING:
    from compiler.io.signature import Signature
    from dialects.strata.types import Array


@dataclass(frozen=True)
class StepGraph:
    """A forward or backward graph (`kind`), and the arguments of one call of it."""

    kind: str
    graph: Any
    given: Sequence[Any]

    @property
    def model(self) -> MemoryModel:
        results = [k for k, v in enumerate(output_nodes(self.graph))
                   if hasattr(getattr(v, "meta", {}).get("val"), "dtype")]
        return MemoryModel(MODEL, CapturedGraph(self.graph, {}, results))

    def inputs(self, signature: Signature) -> list[Array]:
        """The arguments that compiled code takes, in its order."""
        nodes = [n for n in self.graph.graph.nodes if n.op == "placeholder"]
        named = {n.name: v for n, v in zip(nodes, self.given, strict=True)}
        return [contents_of(named[name], name) for name in signature.input_names]

    def eager(self) -> list[Array]:
        """What eager mode computes."""
        made = self.graph.forward(*(v.clone() if hasattr(v, "clone") else v for v in self.given))
        return [contents_of(v, f"result {k}") for k, v in enumerate(made) if hasattr(v, "dtype")]


def step_graphs(module: Any, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[StepGraph]:
    """The forward graphs of a module and then their backward graphs, for random gradients of its
    results. Layers such as nn.LSTM are captured, which PyTorch runs eagerly without `allow_rnn`.

    Raises StrataError for a module without gradients, and for one that is not captured.
    """
    torch, found, kinds = torch_module(), list[StepGraph](), ["forward"]

    class Recorded(Program):
        def compiled(self, weights: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
            return partial(_recorded, found, kinds, self.graph)

    def backend(graph: Any, examples: Sequence[Any]) -> Callable[..., Any]:
        return compiled_by(Recorded, graph, examples, {})

    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        results = torch.compile(module, backend=backend, dynamic=False)(*inputs, **named)
    leaves = [v for v in torch.utils._pytree.tree_leaves(results)
              if getattr(v, "requires_grad", False)]
    if not leaves:
        raise StrataError("there are no gradients", [Problem(
            "no result depends on a parameter or input that requires them")])
    kinds[:] = ["backward"]
    draw = torch.Generator().manual_seed(0)
    torch.autograd.backward(leaves, [torch.randn(
        v.shape, generator=draw, dtype=v.dtype).to(v.device) for v in leaves])
    if not found:
        raise StrataError("there is no graph to verify", [Problem(
            "PyTorch runs the whole module eagerly; TORCH_LOGS=graph_breaks says why")])
    return found


def _recorded(found: list[StepGraph], kinds: Sequence[str], graph: Any, *given: Any) -> Any:
    """The results of a graph, of which the last kind is the current one."""
    found.append(StepGraph(kinds[-1], graph, [v.detach().clone() if hasattr(v, "detach") else v
                                              for v in given]))
    return graph.forward(*given)
