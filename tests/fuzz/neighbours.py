"""The sample of every ONNX importer between drawn neighbours: machine code against NumPy.

    x -> turned twice, joined and cut, flattened, ... -> operator -> joined with itself, ...

The other fuzzers of this folder draw their models from some hundred operators. Samples of all
importers, also those of onnxruntime's and ONNX's other domains, are tested by themselves; here,
passes get them as parts of models, at fixed and at open sizes.

    python -m tests.fuzz.neighbours --seed 3
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.diagnostics import StrataError
from tests.frontend.onnx_models import Op, model_of
from tests.frontend.operators.onnx_contrib_samples import SAMPLES as CONTRIB
from tests.frontend.operators.onnx_ml_samples import SAMPLES as ML
from tests.frontend.operators.test_onnx_operators import ALL

SAMPLES: Sequence[Op] = [*ALL, *CONTRIB, *ML]
TURNED = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64}
"""Element types of inputs that get neighbours: those that all neighbours take."""
NEWEST = 13
"""The first opset in which all neighbours have the inputs that they have here."""
NEAR, STEPS = 1e-3, 1
"""How far floats may differ, and integers, which are rounded in quantized operators."""


@dataclass
class Draft:
    """A model under construction: nodes around a sample's own, and constants for them."""

    rng: random.Random
    graph: onnx.GraphProto
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    count: int = 0

    def __call__(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        self.count += 1
        name = f"drawn{self.count}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def constant(self, *numbers: int) -> str:
        self.count += 1
        name = f"drawn{self.count}"
        self.graph.initializer.append(numpy_helper.from_array(np.array(numbers), name))
        return name


Neighbour = Callable[[Draft, str, int], str]
"""neighbour(draft, tensor, rank): a tensor with the same shape and numbers."""


def turned(draft: Draft, x: str, rank: int) -> str:
    order = draft.rng.sample(range(rank), rank)
    away = draft("Neg", draft("Transpose", x, perm=order))
    return draft("Transpose", draft("Neg", away), perm=[order.index(k) for k in range(rank)])


def joined(draft: Draft, x: str, rank: int) -> str:
    """One half of x behind x, along an axis whose size is asked for."""
    axis = draft.rng.randrange(rank)
    both = draft("Concat", x, x, axis=axis)
    size = draft("Gather", draft("Shape", x), draft.constant(axis))
    bounds = (size, draft.constant(2**31 - 1)) if draft.rng.random() < 0.5 else (
        draft.constant(0), size)
    return draft("Slice", both, *bounds, draft.constant(axis))


def flattened(draft: Draft, x: str, rank: int) -> str:
    flat = draft("Reshape", x, draft.constant(-1))
    return draft("Reshape", draft("Mul", draft("Abs", flat), draft("Sign", flat)),
                 draft("Shape", x))


def chosen(draft: Draft, x: str, rank: int) -> str:
    return draft("Where", draft("Equal", x, x), x, draft("Neg", x))


def wrapped(draft: Draft, x: str, rank: int) -> str:
    return draft("Squeeze", draft("Unsqueeze", x, draft.constant(0)), draft.constant(0))


BEFORE: Sequence[Neighbour] = (turned, joined, flattened, chosen, wrapped)
AFTER: dict[str, Callable[[Draft, str], str]] = {
    "joined": lambda draft, y: draft("Concat", y, y, axis=-1),
    "shape": lambda draft, y: draft("Shape", y),
    "wrapped": lambda draft, y: draft("Unsqueeze", y, draft.constant(0)),
    "repeated": lambda draft, y: draft("Expand", y, draft.constant(2, 1, 1, 1, 1, 1)),
    "alone": lambda draft, y: draft("Identity", y),
}


def surrounded(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """The model of one node with neighbours of some of its inputs, and of its first output."""
    if next(o.version for o in model.opset_import if not o.domain) < NEWEST:
        return model
    draft, own = Draft(rng, model.graph), list(model.graph.node)
    for given in model.graph.input:
        rank = len(given.type.tensor_type.shape.dim)
        if rank and given.type.tensor_type.elem_type in TURNED and rng.random() < 0.7:
            new = rng.choice(BEFORE)(draft, given.name, rank)
            for node in own:
                node.input[:] = [new if name == given.name else name for name in node.input]
    draft.nodes += own
    if rng.random() < 0.7:
        last = rng.choice([*AFTER.values()])(draft, model.graph.output[0].name)
        model.graph.output.append(onnx.ValueInfoProto(name=last))
    del model.graph.node[:]
    model.graph.node.extend(draft.nodes)
    return model


def drawn(number: int, seed: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model around a sample, and its inputs."""
    sample, rng = SAMPLES[number], random.Random(1000 * seed + number)
    symbolic = sample.symbolic and rng.random() < 0.6
    model, inputs = model_of(sample, rng.choice(sample.opsets), symbolic)
    return surrounded(model, rng), inputs


def differences(number: int, seed: int) -> Iterator[str]:
    """What machine code computes otherwise than the graph's definitions, or refuses alone."""
    model, inputs = drawn(number, seed)
    found: list[Any] = []
    for target in ("cpu", "reference"):
        try:
            program = compiler.compile(model, target=target, cache="off", threads=1)
            found.append([np.asarray(y) for y in program(**inputs)])
        except (StrataError, ValueError, IndexError) as error:
            found.append(error)
    if any(isinstance(f, Exception) for f in found):
        if not all(isinstance(f, Exception) for f in found):
            yield f"one target refuses it: {found}"
        return
    for k, (got, want) in enumerate(zip(*found, strict=True)):
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            yield f"result {k} is {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
            continue
        near = (0, STEPS) if want.dtype.kind in "biu" else (NEAR, NEAR)
        a, b = got.astype(np.float64), want.astype(np.float64)
        if not np.allclose(a, b, *near, equal_nan=True):
            yield f"result {k} is off by up to {np.nanmax(np.abs(a - b))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args().seed
    for number, sample in enumerate(SAMPLES):
        for text in differences(number, seed):
            print(f"{number} {sample.op_type}: {text}")


if __name__ == "__main__":
    main()
