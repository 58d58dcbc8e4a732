"""Every attribute of every ONNX operator with a sample, at another value than in the sample.

The schemas list the attributes, so an importer that ignores one fails here, and so does a new
sample with an attribute that is nowhere set. What counts is ONNX's reference evaluator, or
onnxruntime where that differs or has no such operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import defs
from onnx.reference import ReferenceEvaluator

from compiler.diagnostics import StrataError
from dialects.strata.types import Array
from tests.frontend.onnx_models import (
    C,
    Op,
    assert_close,
    f,
    i32,
    i64,
    model_of,
    op,
    run_import,
    run_reference,
)
from tests.frontend.operators.test_onnx_operators import ALL

Type = defs.OpSchema.AttrType
MOST = 2
"""How many changed samples are compared for each attribute."""

TEXTS: dict[str, tuple[str, ...]] = {
    "auto_pad": ("SAME_UPPER", "VALID"), "reduction": ("none", "add", "mul", "max", "min"),
    "DepthToSpace.mode": ("DCR", "CRD"), "SpaceToDepth.mode": ("DCR", "CRD"),
    "Pad.mode": ("constant", "reflect", "edge", "wrap"), "Resize.mode": ("nearest", "linear"),
    "Upsample.mode": ("nearest", "linear"), "BitShift.direction": ("LEFT", "RIGHT"),
    "direction": ("forward", "reverse"), "approximate": ("none", "tanh"),
    "nearest_mode": ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
    "padding_mode": ("zeros", "border", "reflection"), "TensorScatter.mode": ("linear", "circular"),
    "coordinate_transformation_mode": (
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
    "RoiAlign.coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "RoiAlign.mode": ("avg", "max"),
}
"""Values of texts, by operator and attribute, or by attribute alone."""

NOT_VARIED: dict[str, str] = {
    "hidden_size": "repeats a size of the weights",
    "num_outputs": "repeats the number of outputs",
    "kernel_shape": "repeats a size of the weights, or must fit the pads",
    "consumed_inputs": "has no effect", "spatial": "has one value since opset 9",
    "stash_type": "says how to compute, not what",
    "sorted": "the order is not determined without it",
    "momentum": "is for training", "training_mode": "is refused", "seed": "is for training",
    "ratio": "is for training", "clip": "the reference evaluator ignores it",
    "Resize.exclude_outside": "is for cubic interpolation alone",
    "Resize.axes": "must fit the number of sizes", "Slice.axes": "must fit the starts",
    "ReverseSequence.batch_axis": "must differ from time_axis",
    "ReverseSequence.time_axis": "must differ from batch_axis",
    "LSTM.activation_alpha": "needs activations that have parameters",
    "LSTM.activation_beta": "needs activations that have parameters",
    "GRU.activation_alpha": "needs activations that have parameters",
    "GRU.activation_beta": "needs activations that have parameters",
    "GRU.activations": "test_onnx_recurrent.py has them",
    "MaxUnpool.pads": "test_onnx_pools.py has them",
    "Mod.fmod": "is determined by the element type",
    "RoiAlign.sampling_ratio": "0 is refused, as test_onnx_errors.py says",
}
"""Attributes without other values, by operator and attribute, or by attribute alone."""


REFUSED = {
    "LRN.size": "must be 2 numbers from 1 up", "LpNormalization.p": "must be 1 or 2",
    "LpPool.p": "must be positive", "GlobalLpPool.p": "must be positive",
    "MaxPool.pads": "hold a whole window", "LpPool.pads": "hold a whole window",
    "Split.split": "do not add up",
}
"""Attributes with values that make no sense, which the reference evaluator accepts."""


def named(op_type: str, attribute: str, table: Mapping[str, Any]) -> Any:
    return table.get(f"{op_type}.{attribute}", table.get(attribute))


# ---------------------------------------------------------------------- other values
def other_values(op_type: str, schema: Any, value: Any) -> Iterator[Any]:
    """Values for an attribute instead of the given one, or of the default."""
    match schema.type:
        case Type.INT:
            flag = schema.default_value.i in (0, 1) and "axis" not in schema.name
            found: tuple[Any, ...] = (0, 1) if flag else (1, 2, -1, 0)
        case Type.FLOAT:
            found = (0.5, 2.25)
        case Type.STRING:
            found = named(op_type, schema.name, TEXTS) or ()
        case Type.INTS:
            found = tuple([v + step for v in value] for step in (1, 2)) if value else ([0], [1, 1])
        case Type.FLOATS:
            found = ([v + 0.5 for v in value],) if value else ()
        case _:
            found = ()
    yield from (v for v in found if v != value and (value is not None or v != default_of(schema)))


def default_of(schema: Any) -> Any:
    kind = {Type.INT: "i", Type.FLOAT: "f", Type.STRING: "s"}.get(schema.type)
    found = None if kind is None else getattr(schema.default_value, kind)
    return found.decode() if isinstance(found, bytes) else found


@cache
def schemas(op_type: str) -> dict[str, Any]:
    """The attributes of an operator at the opsets of its samples, by name; the newest of each."""
    found: dict[str, Any] = {}
    for opset in sorted({max(s.opsets) for s in samples(op_type)}):
        if defs.has(op_type, opset):
            found |= defs.get_schema(op_type, opset).attributes
    return {k: v for k, v in found.items() if v.type not in (Type.GRAPH, Type.TENSOR)
            and named(op_type, k, NOT_VARIED) is None}


def samples(op_type: str) -> list[Op]:
    return [s for s in ALL if s.op_type == op_type and not s.domain]


def changed(op_type: str, attribute: str) -> Iterator[Op]:
    """Samples with another value of an attribute, as far as their opset has it."""
    for sample in samples(op_type):
        opset = max(sample.opsets)
        known = defs.has(op_type, opset) and defs.get_schema(op_type, opset).attributes
        if known and attribute in known:
            value = sample.attributes.get(attribute)
            for other in other_values(op_type, known[attribute], value):
                yield replace(sample, opsets=(opset,),
                              attributes={**sample.attributes, attribute: other})


# ---------------------------------------------------------------------- checks
def by_reference(sample: Op) -> list[Array] | None:
    """What the reference evaluator gives; None if it refuses the model or lacks the operator."""
    model, inputs = model_of(sample, sample.opsets[0], symbolic=False)
    try:
        with np.errstate(all="ignore"):
            evaluator: Any = ReferenceEvaluator(model)
            return list(evaluator.run(None, inputs))
    except Exception:
        return None


def check(sample: Op, expected: list[Array], folder: Path) -> None:
    model, inputs = model_of(sample, sample.opsets[0], symbolic=False)
    tolerance = max(sample.tolerance, 1e-4)
    found = run_import(model, inputs, folder)
    try:
        assert_close(found, expected, tolerance)
    except (AssertionError, ValueError):
        assert_close(found, run_reference(model, inputs), tolerance)


OPERATORS = sorted({s.op_type for s in ALL if not s.domain})


@pytest.mark.parametrize("op_type", OPERATORS)
def test_other_values(op_type: str, tmp_path: Path) -> None:
    for attribute in schemas(op_type):
        valid = ((s, e) for s in changed(op_type, attribute) if (e := by_reference(s)) is not None)
        for sample, expected in islice(valid, MOST):
            try:
                check(sample, expected, tmp_path)
            except (StrataError, AssertionError) as error:
                refusal = REFUSED.get(f"{op_type}.{attribute}")
                if not isinstance(error, StrataError) or not refusal or refusal not in str(error):
                    raise AssertionError(f"{op_type} {dict(sample.attributes)}: {error}") from error


LACKING = [
    op("Gemm", i32(2, 3), i32(3, 4), i32(4), alpha=0.5),
    op("Gemm", i32(2, 3), i32(3, 4), i32(4), alpha=-1.5, beta=0.5),
    op("Gemm", i64(2, 3), i64(3, 4), i64(4), alpha=3.0, beta=2.0),
    op("Pad", f(3), C([5, 7]), opsets=(19,), mode="reflect"),
    op("Pad", f(4, 2), C([0, 9, 3, 4]), opsets=(19,), mode="reflect"),
]
"""What onnxruntime refuses."""


@pytest.mark.parametrize("sample", LACKING, ids=lambda s: s.op_type)
def test_what_onnxruntime_lacks(sample: Op, tmp_path: Path) -> None:
    model, inputs = model_of(sample, sample.opsets[0], symbolic=False)
    expected = by_reference(sample)
    assert expected is not None
    assert_close(run_import(model, inputs, tmp_path), expected, 1e-6)


def test_every_attribute_is_varied() -> None:
    """In the samples or here."""
    alone = [f"{op_type}.{attribute}" for op_type in OPERATORS for attribute in schemas(op_type)
             if len({str(s.attributes.get(attribute)) for s in samples(op_type)}) == 1
             and next(changed(op_type, attribute), None) is None]
    assert not alone, "add samples that set them"
