"""Why operators run eagerly that could be compiled only with other results than eager mode's.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Mapping

_DRAWS = "how many numbers it draws depends on its elements"
_EIGEN = "the order of eigenvalues and the phases of vectors follow from LAPACK's steps"
_PIVOTS = "blocks of one or two pivots follow from LAPACK's search among the elements that are left"

WHY: Mapping[str, str] = {
    **{f"aten.{name}.default": _DRAWS for name in (
        "binomial", "poisson", "_sample_dirichlet", "_standard_gamma")},
    "aten.rrelu_with_noise_functional.default":
        "in training it draws as many numbers as there are elements below 0",
    "aten.multinomial.default": "with replacement, numbers are drawn one by one in f64",
    "aten.linalg_eig.default": _EIGEN, "aten._linalg_eigvals.default": _EIGEN,
    "aten.linalg_ldl_factor_ex.default": _PIVOTS, "aten.linalg_ldl_solve.default": _PIVOTS,
}
"""Operator without an importer -> why."""


def unsupported(op: str) -> str:
    """What is told of an operator without an importer."""
    return f"{op} is not supported{f': {WHY[op]}' if op in WHY else ''}"
