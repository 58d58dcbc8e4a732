"""What a program computes from sizes in Python, and what it relies on about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.diagnostics import StrataError

torch: Any = pytest.importorskip("torch")
Body = Callable[[Any, Any, Any], Any]
SHAPES = ((6, 5), (9, 4), (3, 11), (7, 7), (2, 3))


class Body2d(torch.nn.Module):
    """A function of x and its sizes; x lies in a structure, as inputs may."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body

    def forward(self, given: dict[str, list[Any]]) -> Any:
        x = given["a"][0]
        return self.body(x, x.shape[0], x.shape[1])


def given(rows: int, columns: int) -> dict[str, list[Any]]:
    torch.manual_seed(rows * 100 + columns)
    return {"a": [torch.randn(rows, columns)]}


def exported(body: Body) -> Any:
    auto = torch.export.Dim.AUTO
    return torch.export.export(Body2d(body), (given(6, 5),),
                               dynamic_shapes=({"a": [{0: auto, 1: auto}]},))


REALS: dict[str, Body] = {
    "quotient": lambda x, n, m: x * (n / m), "product": lambda x, n, m: (x - n * 0.1) / (m - 0.5),
    "filled": lambda x, n, m: torch.full((2,), 1 / n), "power": lambda x, n, m: x.abs().pow(1 / n),
    "clamp": lambda x, n, m: torch.clamp(x, max=n / 7), "neg": lambda x, n, m: -(n / m) * x,
    "larger": lambda x, n, m: x * torch.sym_max(n * 0.5, m), "mod": lambda x, n, m: n * 0.3 % m * x,
    "compare": lambda x, n, m: x.int() < n / m, "alpha": lambda x, n, m: x.add(x, alpha=n / m),
    "tensor": lambda x, n, m: torch.tensor(n / m) * x, "two": lambda x, n, m: 2.0 ** (-n) * x,
    "half": lambda x, n, m: x.half() * (n / m), "of integers": lambda x, n, m: x.int() * (n / m),
    "resize": lambda x, n, m: torch.nn.functional.interpolate(x[None, None], scale_factor=1.5),
}


def some(bodies: dict[str, Body], *fast: str) -> list[Any]:
    return [pytest.param(n, marks=() if n in fast else pytest.mark.slow) for n in bodies]


@pytest.mark.parametrize("name", some(REALS, "quotient", "half"))
def test_numbers_are_computed_from_open_sizes(name: str) -> None:
    run = compiler.compile(exported(REALS[name]), target="reference", cache="off")
    for shape in SHAPES[:4]:
        want = Body2d(REALS[name])(given(*shape)).numpy()
        [got] = run(given(*shape)["a"][0].numpy())
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        exact = 2e-3 if want.dtype == np.float16 else 2e-6
        np.testing.assert_allclose(got, want, rtol=exact, atol=exact)


def test_they_are_plain_numbers_where_sizes_are_fixed(tmp_path: Path) -> None:
    torch.export.save(exported(lambda x, n, m: torch.nn.functional.leaky_relu(x, 1 / n)),
                      tmp_path / "m.pt2")
    with pytest.raises(StrataError, match="its slope is computed from sizes that are open"):
        compiler.compile(tmp_path / "m.pt2", target="reference", cache="off")
    run = compiler.compile(tmp_path / "m.pt2", target="reference", cache="off",
                           shapes={"arg_0": [4, 3]})
    x = given(4, 3)["a"][0]
    np.testing.assert_allclose(run(x.numpy())[0], torch.nn.functional.leaky_relu(x, 0.25).numpy())


GUARDED: dict[str, Body] = {
    "rounded": lambda x, n, m: x[:int(n * 0.5)],
    "quotient": lambda x, n, m: torch.nn.functional.scaled_dot_product_attention(
        x[None], x[None], x[None], scale=1 / m),
    "equal": lambda x, n, m: x + 1 if n * 2 == m + 7 else x,
    "larger": lambda x, n, m: x + 1 if n > m else x, "unequal": lambda x, n, m: x if n == 9 else -x,
    "view": lambda x, n, m: x.view(2, -1), "both": lambda x, n, m: x + 1 if n * m > 20 else x,
    "nested": lambda x, n, m: x if 2 * n > 3 * m or n % 3 == 1 else x + 1,
}


@pytest.mark.parametrize("name", some(GUARDED, "rounded", "quotient"))
@pytest.mark.parametrize("is_file", [False, True], ids=["program", "file"])
def test_the_branches_that_were_exported_hold(name: str, is_file: bool, tmp_path: Path) -> None:
    """At each shape the program runs, right, or is refused, exactly where PyTorch refuses it."""
    program, model = exported(GUARDED[name]), tmp_path / "m.pt2"
    torch.export.save(program, model)
    run = compiler.compile(model if is_file else program, target="reference", cache="off")
    refused = 0
    for shape in SHAPES:
        x = given(*shape)
        try:
            want = program.module()(x)
        except AssertionError:
            refused += 1
            with pytest.raises(ValueError, match="sizes do not fit each other"):
                run(x["a"][0].numpy())
            continue
        np.testing.assert_allclose(run(x["a"][0].numpy())[0], want.numpy(), rtol=1e-5, atol=1e-5)
    assert 0 < refused < len(SHAPES)


def test_fixed_sizes_that_break_a_guard() -> None:
    with pytest.raises(StrataError, match="violate a condition that the model was exported with"):
        compiler.compile(exported(GUARDED["larger"]), shapes={"given_a_0": [3, 11]}, cache="off")


def test_a_guard_of_a_file_that_cannot_be_read_holds_the_example() -> None:
    from compiler.frontend.torch.guards import guards_of, relations, restore_guards
    from compiler.frontend.torch.sizes import Sizes

    program = exported(REALS["quotient"])
    restore_guards(program, ["__import__('os').getcwd() == 3", "L['other'].size()[0] == 3"])
    found = {f"{r.left} {r.relation} {r.right}" for r in relations(
        guards_of(program.graph), program.graph, Sizes())}
    assert {text.partition(" ")[2] for text in found} == {"== 6", "== 5"}
