"""A PyTorch model: its exported program, and the module that PyTorch itself runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler.diagnostics import StrataError
from compiler.frontend.torch.library import torch_module
from compiler.io.arrays import kind_of

if TYPE_CHECKING:
    from dialects.strata.types import Array


@dataclass(frozen=True)
class Captured:
    """A model that was loaded. `own`: the exported module; None if there is only the program."""

    name: str
    program: Any
    own: Any = None

    def module(self) -> Any:
        """The module for PyTorch to run: the exported one, or one created from the program."""
        return self.program.module() if self.own is None else self.own

    @property
    def input_names(self) -> list[str]:
        """The names in the program of the arguments that are tensors."""
        return [a.name for a in self._given() if type(a).__name__ == "TensorArgument"]

    def arguments(self, named: Mapping[str, Array]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments of a call, from arrays by name. Raises StrataError.
        """
        torch, tree = torch_module(), torch_module("torch.utils._pytree")
        make = kind_of(torch.empty(0))
        assert make is not None
        leaves: list[Any] = []
        for argument in self._given():
            match type(argument).__name__:
                case "TensorArgument":
                    leaves.append(make(named[argument.name]))
                case "ConstantArgument":
                    leaves.append(argument.value)
                case kind:
                    raise StrataError(f"{self.name} takes '{argument.name}', a {kind}; only "
                                      "tensors and constants can be passed to PyTorch here")
        return tree.tree_unflatten(leaves, self.program.call_spec.in_spec)

    def tensors(self, result: Any) -> list[Any]:
        """The tensors in what a call returned, in order."""
        tree, kind = torch_module("torch.utils._pytree"), torch_module().Tensor
        return [x for x in tree.tree_leaves(result) if isinstance(x, kind)]

    def _given(self) -> list[Any]:
        return [spec.arg for spec in self.program.graph_signature.input_specs
                if spec.kind.name == "USER_INPUT"]
