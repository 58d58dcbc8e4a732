"""Operators for the steps of larger matrices, which decompositions use and importers make loops of.

PyTorch computes them itself where a program runs eagerly. All take batches of matrices, of any
number of rows and columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from compiler.frontend.torch.library import torch_module


# ---------------------------------------------------------------------- what eager mode computes
def _lu(x: Any, pivot: bool) -> Any:
    """L and U in one matrix, pivots, the number of the first pivot of 0."""
    factors, pivots, info = torch_module().linalg.lu_factor_ex(x, pivot=pivot)
    return factors, pivots, info


def _cholesky(x: Any) -> Any:
    found, info = torch_module().linalg.cholesky_ex(x)
    return found, info


def _reflections(x: Any) -> Any:
    return torch_module().geqrf(x)


def _reflected(vectors: Any, factors: Any, b: Any, transpose: bool) -> Any:
    return torch_module().ormqr(vectors, factors, b, True, transpose)


def _order(pivots: Any, count: int) -> Any:
    """The row that is at each place after all exchanges."""
    torch = torch_module()
    found = torch.arange(count, device=pivots.device).repeat(*pivots.shape[:-1], 1)
    for k in range(pivots.shape[-1]):
        at = pivots[..., k:k + 1].long() - 1
        first, other = found[..., k:k + 1].clone(), found.gather(-1, at)
        found.scatter_(-1, at, first)
        found[..., k:k + 1] = other
    return found


def _substituted(x: Any, b: Any, upper: bool, unit: bool) -> Any:
    return torch_module().linalg.solve_triangular(x, b, upper=upper, unitriangular=unit)


# ---------------------------------------------------------------------- shapes
def _shapes_of_lu(x: Any, pivot: bool) -> Any:
    torch = torch_module()
    steps = torch.sym_min(*x.shape[-2:])
    batch = x.shape[:-2]
    return (x.new_empty(x.shape), x.new_empty((*batch, steps), dtype=torch.int32),
            x.new_empty(batch, dtype=torch.int32))


def _shapes_of_cholesky(x: Any) -> Any:
    return x.new_empty(x.shape), x.new_empty(x.shape[:-2], dtype=torch_module().int32)


def _shapes_of_reflections(x: Any) -> Any:
    steps = torch_module().sym_min(*x.shape[-2:])
    return x.new_empty(x.shape), x.new_empty((*x.shape[:-2], steps))


def _shapes_of_reflected(vectors: Any, factors: Any, b: Any, transpose: bool) -> Any:
    return b.new_empty(b.shape)


def _shapes_of_order(pivots: Any, count: Any) -> Any:
    return pivots.new_empty((*pivots.shape[:-1], count), dtype=torch_module().int64)


def _shapes_of_substituted(x: Any, b: Any, upper: bool, unit: bool) -> Any:
    return b.new_empty(b.shape)


# ---------------------------------------------------------------------- the operators
_FORMS: Mapping[str, tuple[str, Any, Any]] = {
    "lu": ("(Tensor x, bool pivot) -> (Tensor, Tensor, Tensor)", _lu, _shapes_of_lu),
    "cholesky": ("(Tensor x) -> (Tensor, Tensor)", _cholesky, _shapes_of_cholesky),
    "reflections": ("(Tensor x) -> (Tensor, Tensor)", _reflections, _shapes_of_reflections),
    "reflected": ("(Tensor vectors, Tensor factors, Tensor b, bool transpose) -> Tensor",
                  _reflected, _shapes_of_reflected),
    "order": ("(Tensor pivots, SymInt count) -> Tensor", _order, _shapes_of_order),
    "substituted": ("(Tensor x, Tensor b, bool upper, bool unit) -> Tensor",
                    _substituted, _shapes_of_substituted),
}
"""The name of an operator, its form, what it computes and the shapes of that."""


@cache
def operators() -> Any:
    """The operators, by their names, known to PyTorch from now on."""
    library = torch_module("torch.library")
    home = library.Library("strata_matrices", "FRAGMENT")
    for name, (form, compute, shapes) in _FORMS.items():
        home.define(name + form)
        home.impl(name, compute, "CompositeExplicitAutograd")
        library.register_fake(f"strata_matrices::{name}", shapes, lib=home)
    operators.home = home  # type: ignore[attr-defined]
    return torch_module().ops.strata_matrices
