"""Every ATen operator that is imported, against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from compiler.frontend.torch.ops import importers
from tests.pytorch.op_samples import FIRST_ONLY, UNSAMPLED
from tests.pytorch.operators.all_samples import SAMPLES as OPERATOR_SAMPLES
from tests.pytorch.programs import check_outputs, export, run
from tests.pytorch.training.gradients.gradient_samples import GRADIENT_SAMPLES

SAMPLES = OPERATOR_SAMPLES | GRADIENT_SAMPLES
CASES = [(name, k) for name, samples in SAMPLES.items() for k in range(len(samples))]


def find(name: str) -> Any:
    """The operator of a full name."""
    found = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


class Call(torch.nn.Module):
    """An operator with the tensors of its arguments as inputs."""

    def __init__(self, name: str, arguments: tuple[Any, ...]):
        super().__init__()
        self.op = find(name)
        self.keywords = arguments[-1] if isinstance(arguments[-1], dict) else {}
        plain = arguments[:-1] if self.keywords else arguments
        leaves, self.spec = torch.utils._pytree.tree_flatten(plain)
        self.fixed = [None if isinstance(v, torch.Tensor) else v for v in leaves]
        self.places = [k for k, v in enumerate(leaves) if isinstance(v, torch.Tensor)]
        self.inputs = [leaves[k].clone() for k in self.places]

    def forward(self, *inputs: torch.Tensor) -> Any:
        leaves = list(self.fixed)
        for place, value in zip(self.places, inputs, strict=True):
            leaves[place] = value
        arguments = list(torch.utils._pytree.tree_unflatten(leaves, self.spec))
        keywords = dict(self.keywords)
        positional = [a for a in self.op._schema.arguments if not a.kwarg_only]
        named = self.op._schema.arguments[len(positional):]
        for argument, value in zip(named, arguments[len(positional):], strict=False):
            keywords[argument.name] = value
        made = self.op(*arguments[:len(positional)], **keywords)
        return made[0] if str(self.op) in FIRST_ONLY else made


def check(name: str, k: int, target: str) -> None:
    call = Call(name, SAMPLES[name][k])
    want = call(*call.inputs)
    check_outputs(run(export(call, call.inputs), call.inputs, target), want)


@pytest.mark.parametrize(("name", "k"), CASES)
def test_operator(name: str, k: int) -> None:
    check(name, k, "reference")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "k"), CASES)
def test_operator_on_the_cpu(name: str, k: int) -> None:
    check(name, k, "cpu")


def test_every_importer_has_a_sample() -> None:
    """But for collectives: `tests/ranks` has samples of those."""
    known = {name for name in importers() if not name.startswith("_c10d_functional")}
    assert not known - set(SAMPLES) - UNSAMPLED
