"""Operators of onnxruntime's domain: against onnxruntime, or against their definition in NumPy.

Those that multiply bytes always are: `tests/byte_products.py` says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import load_model
from compiler.frontend.onnx.ops import importers
from compiler.frontend.onnx.schema import contrib_schemas
from dialects.strata.types import Array
from tests.frontend.onnx_models import (
    Op,
    assert_close,
    make_model,
    model_of,
    run_import,
    run_imported,
    run_reference,
    save,
    value_info,
)
from tests.frontend.operators.onnx_byte_definitions import BYTE_DEFINITIONS, by_definition
from tests.frontend.operators.onnx_contrib_definitions import DEFINITIONS
from tests.frontend.operators.onnx_contrib_samples import SAMPLES
from tests.frontend.operators.onnx_ml_samples import SAMPLES as ML_SAMPLES

DOMAIN = "com.microsoft"
CLOSE = 1e-4
"""How far products of bytes may be off their definition, whatever onnxruntime is off."""
CASES = [pytest.param(sample, opset, id=f"{k}-{sample.op_type}-{opset}")
         for k, sample in enumerate(SAMPLES) for opset in sample.opsets]


@pytest.mark.parametrize(("sample", "opset"), CASES)
def test_import_computes_what_onnxruntime_does(sample: Op, opset: int, tmp_path: Path):
    model, inputs = model_of(sample, opset, symbolic=False)
    actual = run_import(model, inputs, tmp_path)
    expected = truth_of(sample, model, inputs, actual)
    tolerance = min(sample.tolerance, CLOSE if sample.op_type in BYTE_DEFINITIONS else 1)
    assert_close(actual, expected, tolerance, sample.steps)
    if sample.symbolic:
        model, inputs = model_of(sample, opset, symbolic=True)
        assert_close(run_import(model, inputs, tmp_path), expected, tolerance, sample.steps)


def truth_of(
    sample: Op, model: onnx.ModelProto, inputs: Mapping[str, Array], actual: Sequence[Array]
) -> list[Array]:
    if sample.op_type in BYTE_DEFINITIONS:
        return by_definition(BYTE_DEFINITIONS, sample, actual)
    if sample.defined:
        return by_definition(DEFINITIONS, sample, actual)
    return run_reference(model, inputs)


def test_every_importer_has_a_sample_and_a_schema():
    ours = {op_type for domain, op_type in importers() if domain == DOMAIN}
    added = {op_type for domain, op_type in contrib_schemas() if not domain}
    assert ours | added <= {s.op_type for s in SAMPLES}
    assert ours == {op_type for domain, op_type in contrib_schemas() if domain == DOMAIN}


def test_schemas_are_those_of_onnxruntime():
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    theirs = {(s.domain, s.name): s for s in state.get_all_operator_schema()
              if s.domain == DOMAIN or s.since_version == 1}
    for key, schema in contrib_schemas().items():
        known = theirs[key]
        assert (schema.inputs, schema.outputs) == (
            range(known.min_input, known.max_input + 1),
            range(known.min_output, known.max_output + 1)), key
        kinds = {name: str(a.type).rsplit(".", 1)[-1] for name, a in known.attributes.items()}
        assert {a: onnx.AttributeProto.AttributeType.Name(kind)
                for a, kind in schema.attributes.items()} == kinds, key
        assert schema.needed == {name for name, a in known.attributes.items() if a.required}, key


# ---------------------------------------------------------------------- one import, many sizes
SIZES = [(1, 5, 0), (2, 5, 0), (1, 1, 5), (3, 1, 9), (1, 3, 4)]


def decoder() -> onnx.ModelProto:
    """GroupQueryAttention as exporters write it: lengths are computed from the attention mask."""
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["counts"], keepdims=0),
        helper.make_node("Sub", ["counts", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["lengths"], to=onnx.TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "place"], ["whole"], axis=0),
        helper.make_node("Cast", ["whole"], ["total"], to=onnx.TensorProto.INT32),
        helper.make_node("GroupQueryAttention", [
            "q", "k", "v", "past_k", "past_v", "lengths", "total", "cos", "sin"],
            ["y", "present_k", "present_v"], domain=DOMAIN, num_heads=4, kv_num_heads=2,
            do_rotary=1, name="attend")]
    inputs = [value_info(name, np.float32, ["batch", "length", width])
              for name, width in (("q", 64), ("k", 32), ("v", 32))]
    inputs += [value_info(name, np.float32, ["batch", 2, "past", 16])
               for name in ("past_k", "past_v")]
    inputs.append(value_info("mask", np.int64, ["batch", "total"]))
    angles = np.random.default_rng(0).uniform(-1, 1, (2, 20, 8)).astype(np.float32)
    constants = {"cos": angles[0], "sin": angles[1], "one": np.array([1]), "place": np.array(1)}
    return make_model(nodes, inputs, ["y", "present_k", "present_v"], constants, opset=17,
                      domains={DOMAIN: 1})


def decoder_inputs(batch: int, length: int, past: int) -> dict[str, Array]:
    rng = np.random.default_rng(length + past)
    shapes = {"q": (batch, length, 64), "k": (batch, length, 32), "v": (batch, length, 32),
              "past_k": (batch, 2, past, 16), "past_v": (batch, 2, past, 16)}
    arrays = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    mask = np.ones((batch, past + length), np.int64)
    mask[1:, past + length - 1:] = past == 0  # later items of a batch have a shorter past
    return arrays | {"mask": mask}


def test_one_import_serves_prompts_and_steps(tmp_path: Path):
    model = decoder()
    imported = load_model(save(model, tmp_path))
    for sizes in SIZES:
        inputs = decoder_inputs(*sizes)
        assert_close(run_imported(imported, inputs), run_reference(model, inputs), 2e-5)


def test_the_compiled_decoder(tmp_path: Path):
    """One program of the CPU target, prompts and steps alternating."""
    model = decoder()
    program = compiler.compile(save(model, tmp_path), target="cpu", cache=None)
    for sizes in SIZES:
        inputs = decoder_inputs(*sizes)
        assert_close(program(**inputs), run_reference(model, inputs), 1e-4)


COMPILED = ("Attention", "MatMulNBits", "QLinearAdd", "EmbedLayerNormalization")


@pytest.mark.parametrize("op_type", COMPILED)
def test_compiled_operators(op_type: str, tmp_path: Path):
    sample = next(s for s in SAMPLES if s.op_type == op_type)
    model, inputs = model_of(sample, 1, symbolic=False)
    expected = run_reference(model, inputs)
    symbolic, _ = model_of(sample, 1, symbolic=True)
    program = compiler.compile(save(symbolic, tmp_path), target="cpu", cache=None)
    assert_close(program(**inputs), expected, 1e-4, sample.steps)


# ---------------------------------------------------------------------- bad nodes
FIRST = {s.op_type: s for s in reversed([*SAMPLES, *ML_SAMPLES])}


@pytest.mark.parametrize("op_type", FIRST)
def test_inputs_of_other_ranks_get_a_message(op_type: str, tmp_path: Path):
    """Or they are taken, where the operator allows it."""
    sample = FIRST[op_type]
    model, _ = model_of(sample, sample.opsets[-1], symbolic=False)
    for k in range(len(model.graph.input)):
        for drop in (True, False):
            changed = onnx.ModelProto.FromString(model.SerializeToString())
            dims = changed.graph.input[k].type.tensor_type.shape.dim
            if drop:
                del dims[:]
            else:
                dims.add().dim_value = 3
            with contextlib.suppress(StrataError):
                load_model(save(changed, tmp_path))


X = value_info("x", np.float32, [2, 3, 8])


def fault(node: onnx.NodeProto, folder: Path, constants: dict[str, Any] | None = None) -> str:
    model = make_model([node], [X], ["y"], constants, domains=[DOMAIN])
    with pytest.raises(StrataError) as caught:
        load_model(save(model, folder))
    return str(caught.value)


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "text"), [
    ("BiasGelu", "x", {}, "number of inputs of BiasGelu is 1; it takes at least 2"),
    ("FastGelu", "x x x", {}, "number of inputs of FastGelu is 3; it takes at most 2"),
    ("Attention", "x w", {}, "Attention needs attribute 'num_heads'"),
    ("Attention", "x w", {"num_heads": 1.5}, "'num_heads' of Attention is of type float, not int"),
    ("QuickGelu", "x", {"beta": 1.0}, "QuickGelu has no attribute 'beta'"),
    ("Attention", "x w", {"num_heads": 0}, "num_heads is 0; it must be positive"),
    ("Attention", "x w", {"num_heads": 5}, "5 heads do not divide the hidden size 8"),
    ("Attention", "x w", {"num_heads": 2, "do_rotary": 1}, "do_rotary = 1 is not supported"),
    ("Attention", "x w", {"num_heads": 2, "qkv_hidden_sizes": [8, 8]}, "there must be three"),
    ("FusedGemm", "w w", {"activation": "Magic", "transB": 1}, "its activation 'Magic' is not"),
    ("CDist", "w w", {"metric": "yule"}, "its metric 'yule' is neither"),
    ("GroupNorm", "x v v", {"groups": 3, "activation": 0}, "3 groups do not divide 8 channels"),
    ("MatMulNBits", "x w w", {"bits": 5, "K": 8, "N": 4, "block_size": 16}, "bits is 5"),
    ("BeamSearch", "x x x x x", {}, "operator com.microsoft.BeamSearch"),
])
def test_bad_nodes(op_type: str, inputs: str, attributes: dict[str, Any], text: str,
                   tmp_path: Path):
    node = helper.make_node(op_type, inputs.split(), ["y"], domain=DOMAIN, name="bad", **attributes)
    constants = {"w": np.ones((8, 24), np.float32), "v": np.ones(8, np.float32)}
    message = fault(node, tmp_path, constants)
    assert text in message and "bad" in message
