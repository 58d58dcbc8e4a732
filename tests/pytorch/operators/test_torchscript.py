"""TorchScript: plain modules and archives are imported, others refused with what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import frontends


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)
        self.register_buffer("shift", torch.arange(2.0))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.norm(self.conv(x)).relu().mean((2, 3))
        return self.out(y) + self.shift, y


class Looping(nn.Module):
    """A loop whose number of iterations depends on data, which no conversion unrolls."""

    def forward(self, x: Tensor) -> Tensor:
        while bool(x.sum() < 100):
            x = x * 2
        return x


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated")

X = torch.rand(2, 3, 6, 6)
MAKERS: dict[str, Callable[[nn.Module], Any]] = {
    "scripted": torch.jit.script, "traced": lambda net: torch.jit.trace(net, (X,)),
    "frozen": lambda net: torch.jit.freeze(torch.jit.script(net))}


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize("name", MAKERS)
@torch.no_grad()
def test_plain_modules_are_imported(
    name: str, is_file: bool, net: nn.Module, tmp_path: Path
) -> None:
    model = MAKERS[name](net)
    if is_file:
        torch.jit.save(model, path := tmp_path / "net.pt")
        model = path if name == "traced" else str(path)
    got = compiler.compile(model, args=(X,), target="reference")(X)
    for a, b in zip(got, net(X), strict=True):
        torch.testing.assert_close(torch.as_tensor(a), b, rtol=1e-4, atol=1e-5)


class Defaults(nn.Module):
    """Parameters that have defaults, of which one is how often a loop runs."""

    def forward(self, x: Tensor, times: int = 3, mask: Tensor | None = None,
                scale: float = 0.5) -> list[Tensor]:
        found: list[Tensor] = []
        for k in range(times):
            found.append(x * k * scale if mask is None else x * mask)
        return found


@pytest.mark.parametrize("kwargs", [{}, {"mask": X > 0.5}], ids=["none", "by name"])
@pytest.mark.parametrize("is_file", [False, True])
def test_parameters_that_are_not_given_keep_their_defaults(
    kwargs: dict[str, Any], is_file: bool, tmp_path: Path
) -> None:
    model = torch.jit.script(Defaults())
    if is_file:
        torch.jit.save(model, path := tmp_path / "net.pt")
    exe = compiler.compile(str(path) if is_file else model, args=(X,), kwargs=kwargs,
                           target="reference")
    want = Defaults()(X, **kwargs)
    for a, b in zip(exe(X, *kwargs.values()), want, strict=True):
        torch.testing.assert_close(torch.as_tensor(a), b)


def test_what_is_not_plain_is_refused() -> None:
    model = torch.jit.script(Looping())
    with pytest.raises(StrataError, match=r"torch\.export\.export\(module"):
        compiler.compile(model, args=(torch.ones(3),))


def test_a_conversion_that_computes_other_numbers_is_refused(
    net: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._export import converter

    other = torch.export.export(Net().eval(), (X,))
    monkeypatch.setattr(converter.TS2EPConverter, "convert", lambda self: other)
    with pytest.raises(StrataError, match="other numbers"):
        compiler.compile(torch.jit.script(net), args=(X,))


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pt2"])
def test_files_say_what_they_lack(suffix: str, net: nn.Module, tmp_path: Path) -> None:
    """Sizes, a program, or everything."""
    path = tmp_path / f"net{suffix}"
    for write, text in ((lambda: torch.jit.save(torch.jit.script(net), path), "example inputs"),
                        (lambda: torch.save(net.state_dict(), path), "no program"),
                        (lambda: path.write_bytes(b"weights"), "cannot read")):
        write()
        with pytest.raises(StrataError, match=text) as error:
            compiler.compile(str(path))
        assert "torch.export" in str(error.value)


def test_what_scripts_cannot_have(net: nn.Module) -> None:
    model = torch.jit.script(net)
    with pytest.raises(StrataError, match="example inputs"):
        compiler.compile(model)
    with pytest.raises(StrataError, match=r"torch\.export"):
        compiler.compile(model, args=(X,), dynamic_shapes=({0: torch.export.Dim("n")},))


def test_names_of_other_frontends_stay_theirs() -> None:
    for name, file in (("onnx", "a.onnx"), ("torch", "a.pt2"), ("torch", "a.pth")):
        assert [k for k, f in frontends().items() if f.accepts(file)] == [name]
