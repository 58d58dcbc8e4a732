"""Names in PyTorch models that look like something else: of modules, parameters, inputs, dims.

`tests/pipeline/test_hostile_names.py` does the same for ONNX, whose names may be any text. The name
of a module, a parameter or a buffer is any text without a dot; that of an argument or a dim is an
identifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.diagnostics import StrataError
from tests.pipeline.test_hostile_names import HOSTILE

torch: Any = pytest.importorskip("torch")

TEXTS = [name for name in HOSTILE if "." not in name and len(name) < 10_000]
WORDS = [name for name in HOSTILE if name.isidentifier() and len(name) < 10_000]


class Hostile(torch.nn.Module):
    """One layer in a module, a parameter and a buffer, each with a given name."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer, parameter, buffer = self.names = tuple(names)
        inner = torch.nn.Module()
        self.add_module(layer, inner)
        inner.add_module(parameter, torch.nn.Linear(4, 4))
        self.register_parameter(parameter, torch.nn.Parameter(torch.randn(4)))
        self.register_buffer(buffer, torch.randn(4))

    def forward(self, given: dict[str, Any]) -> dict[str, Any]:
        layer, parameter, buffer = self.names
        linear = getattr(getattr(self, layer), parameter)
        first, *others = given.values()
        total = linear(first) * getattr(self, parameter) + getattr(self, buffer)
        for other in others:
            total = total + other
        return {name: total + k for k, name in enumerate(given)}


def thirds(names: Sequence[str]) -> list[list[str]]:
    """Each name once as a module's, once as a parameter's and once as a buffer's."""
    return [[names[(k + step) % len(names)] for step in range(3)] for k in range(len(names))]


def inputs(names: Sequence[str], rows: int = 5) -> dict[str, Any]:
    torch.manual_seed(rows)
    return {name: torch.randn(rows, 4) for name in names}


def exported(names: Sequence[str], keys: Sequence[str], dim: str) -> Any:
    rows = torch.export.Dim(dim, max=100)
    return torch.export.export(Hostile(names).eval(), (inputs(keys),),
                               dynamic_shapes=({key: {0: rows} for key in keys},))


CASES = [pytest.param(names, TEXTS[k:k + 2] or TEXTS[:2], WORDS[k % len(WORDS)],
                      id=ascii(names[0]), marks=() if k % 6 == 0 else pytest.mark.slow)
         for k, names in enumerate(thirds(TEXTS))]


@pytest.mark.parametrize(("names", "keys", "dim"), CASES)
def test_exported_programs(names: list[str], keys: list[str], dim: str, tmp_path: Path) -> None:
    program = exported(names, keys, dim)
    exe = compiler.compile(program, target="cpu", cache="off")
    assert [s.name for s in exe.signature.symbols()] == [dim]
    for rows in (5, 3):
        given = inputs(keys, rows)
        wanted = Hostile(names).eval()(given)
        found = exe.run([x.numpy() for x in given.values()])
        for got, want in zip(found, wanted.values(), strict=True):
            np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("names", "keys", "dim"), CASES[::6])
def test_dumps_are_read_again(
    names: list[str], keys: list[str], dim: str, tmp_path: Path
) -> None:
    compiler.compile(exported(names, keys, dim), target="cpu", cache="off", dump_dir=tmp_path)
    given = inputs(keys)
    wanted = [y.detach().numpy() for y in Hostile(names).eval()(given).values()]
    dumps = sorted(tmp_path.rglob("*.mlir"))
    assert len(dumps) > 5
    for dump in (dumps[0], dumps[len(dumps) // 2], dumps[-1]):
        exe = compiler.compile(str(dump), target="reference", cache="off")
        for got, want in zip(exe.run([x.numpy() for x in given.values()]), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_files_hold_plain_names(tmp_path: Path) -> None:
    """PyTorch executes parts of the text of a file, so other names in one are refused."""
    path = tmp_path / "model.pt2"
    torch.export.save(exported(['a"b', "x", "y"], ["x"], "n"), path)
    with pytest.raises(StrataError, match=r"the name 'a\"b\.x\.weight' may only have letters"):
        compiler.compile(str(path), target="reference", cache="off")


@pytest.mark.parametrize("word", [pytest.param(w, marks=() if w in ("in0", "é") else
                                               pytest.mark.slow) for w in WORDS])
def test_arguments_of_compiled_functions(word: str) -> None:
    """`torch.compile` of a function whose argument has the name."""
    space: dict[str, Any] = {}
    exec(f"def function({word}):\n    return {word} * 2 + {word}.sum()\n", space)
    x = torch.arange(6.0).reshape(2, 3)
    found = torch.compile(space["function"], backend="strata")(x)
    torch.testing.assert_close(found, x * 2 + 15.0)
