"""`verify --gradients` executes every level of both graphs of a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.__main__ import main
from compiler.frontend.torch.ops import normalization

MODEL = """
import torch
from torch import nn
from tests.pytorch.training.training_models import Gpt, made
from tests.pytorch.training.image_models import Convolutional

def gpt():
    model, inputs = made(lambda: Gpt(0.1))
    return model, tuple(inputs)

def convolutional():
    model, inputs = made(Convolutional)
    return model, tuple(inputs)

class Vanishing(nn.Module):
    # the biases before the norm and of the keys have gradients of zero, but for rounding
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(5, 6), nn.BatchNorm1d(6)
        self.queries, self.keys, self.values = (nn.Linear(6, 6) for _ in range(3))
    def forward(self, x):
        x = self.norm(self.first(x)).relu()
        return nn.functional.scaled_dot_product_attention(
            *(part(x)[None, None] for part in (self.queries, self.keys, self.values)))

def vanishing():
    torch.manual_seed(0)
    return Vanishing(), (torch.randn(37, 5),)

class Inverse(nn.Module):
    def forward(self, x):
        return torch.linalg.eigvalsh(x)

def inverse():
    return Inverse(), (torch.eye(3).requires_grad_(),)

def constant():
    return Inverse(), (torch.eye(3),)

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layer, self.out = nn.Embedding(9, 4), nn.LSTM(4, 3), nn.Linear(3, 2)
    def forward(self, ids):
        return self.out(self.layer(self.words(ids))[0])

def recurrent():
    return Tagger(), (torch.arange(6).view(3, 2),)

class Eager(nn.Linear):
    forward = torch.compiler.disable(nn.Linear.forward)

def eager():
    return Eager(3, 2), (torch.randn(2, 3),)
"""


def run(folder: Path, function: str, *words: str) -> int:
    path = folder / "model.py"
    path.write_text(MODEL)
    return main(["verify", f"{path}:{function}", "--gradients", "--levels-only", *words])


@pytest.mark.parametrize("name", ["gpt", "convolutional", "recurrent"])
def test_both_graphs_are_verified(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, name, "--dump-dir", str(tmp_path / "dumps")) == 0
    said = capsys.readouterr()
    shown = said.out + said.err
    assert "graph 0, forward" in shown and "graph 1, backward" in shown
    assert shown.count("distance from f64: compiled") == 2 and "of 2 graphs agree" in shown
    assert {p.name for p in (tmp_path / "dumps").iterdir()} == {"graph-0", "graph-1"}


def test_an_importer_that_is_wrong_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = normalization._moments
    monkeypatch.setattr(normalization, "_moments", lambda x, axes, epsilon: right(
        x, axes, epsilon * 1000))
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path, "gpt") == 3
    assert "PyTorch" in capsys.readouterr().err


def test_gradients_of_zero_are_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "vanishing") == 0
    said = capsys.readouterr()
    assert (said.out + said.err).count("zero but for rounding") > 1


@pytest.mark.parametrize(("name", "why"), [
    ("inverse", "_linalg_eigh"), ("constant", "there are no gradients"),
    ("eager", "there is no graph to verify")])
def test_what_cannot_be_verified_is_named(
    name: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, name) == 1
    assert why in capsys.readouterr().err
