"""The catalogue against PyTorch: exported once with open sizes, run at several, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import compiler

torch: Any = pytest.importorskip("torch")
from tests.unseen.catalogue import CATALOGUE  # noqa: E402  (needs PyTorch)

FAST = {"kan", "vector-quantizer", "spatial-transformer"}


def names() -> list[Any]:
    return [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in CATALOGUE]


@pytest.mark.parametrize("name", names())
def test_unseen(name: str) -> None:
    unseen = CATALOGUE[name]
    model, inputs = unseen.model(), unseen.feeds(*unseen.sizes[0])
    dims = tuple(dict.fromkeys(d, torch.export.Dim.AUTO) for d in unseen.open)
    run = compiler.compile(torch.export.export(model, inputs, dynamic_shapes=dims), cache="off")
    for n, m in unseen.sizes:
        if n < 2:  # PyTorch's programs with open sizes take two and more
            continue
        given = unseen.feeds(n, m)
        with torch.no_grad():
            found = model(*given)
        expected = found if isinstance(found, tuple) else (found,)
        for got, want in zip(run(*[x.numpy() for x in given]), expected, strict=True):
            assert np.isfinite(got).all()
            np.testing.assert_allclose(got, want.numpy(), rtol=unseen.tolerance,
                                       atol=unseen.tolerance * float(want.abs().max()))
