"""`run` and `verify` tell of NaN, infinite and empty outputs that no input explains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.cli.conftest import Run

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
LOG = "m (float[n] x) => (float[n] y) { y = Log(x) }"
MASKED = ("m (float[n] x) => (float[n] y, float[n] z) "
          "{ c = Constant<value = float {-inf}>() y = Add(x, c) z = Neg(x) }")
BOTH = "m (float[n] x) => (float[n] y, float[n] z) { y = Log(x) z = Neg(x) }"
FOUND = "m (float[n] x) => (int64[k, m] y) { y = NonZero(x) }"


def prepare(text: str, *values: float) -> tuple[str, ...]:
    """The words of a model and its input."""
    if "-inf" in text:
        text = text.replace("float {-inf}", "float {0.0}")
        model = onnx.parser.parse_model(HEADER + text)
        constant = np.array(-np.inf, np.float32)
        model.graph.node[0].attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(constant))
    else:
        model = onnx.parser.parse_model(HEADER + text)
    Path("m.onnx").write_bytes(model.SerializeToString())
    np.savez("in.npz", x=np.array(values, np.float32))
    return "m.onnx", "--inputs", "in.npz"


@pytest.mark.parametrize("command", ["run", "verify"])
@pytest.mark.parametrize(("text", "values", "warning"), [
    (LOG, (1, 2, 3), ""),
    (LOG, (1, -2, 3), "output 'y' has 1 of 3 elements that are NaN or infinite, though no input"),
    (LOG, (1, 0, 3), "output 'y' has 1 of 3 elements that are NaN or infinite, though no input"),
    (LOG, (np.inf, 0, 3), ""),  # the input explains it
    (LOG, (np.nan, -1), "output 'y' is NaN in all of its 2 elements"),
    (LOG, (-1, -1), "in all of its 2 elements, though no input has a NaN or an infinity"),
    (LOG, (), ""),
    (MASKED, (1, 2), ""),  # the constant explains it
    (FOUND, (0, 0), "output 'y' is empty, of shape [1, 0], though no input is"),
    (FOUND, (0, 1), ""),
])
def test_what_no_input_explains(
    strata: Run, command: str, text: str, values: tuple[float, ...], warning: str
) -> None:
    done = strata(command, *prepare(text, *values), "--cache", "off")
    odd = [line for line in done.err.splitlines() if line.startswith("warning: ")
           and "agreement" not in line]
    assert [warning in line for line in odd] == [True] * bool(warning), done.err


def test_numbers_that_are_nowhere_agree_with_nothing(strata: Run) -> None:
    done = strata("verify", *prepare(LOG, -1, -1))
    assert done.status == 1
    assert "nothing was compared: all outputs are NaN" in done.out
    assert "executions agree" not in done.out
    done = strata("verify", *prepare(BOTH, -1, -1))
    assert done.status == 0
    assert "all elements of output 'y' are NaN, of which agreement says nothing" in done.err
    assert "output 'z'" not in done.err
    done = strata("verify", *prepare(BOTH, -1, 1))
    assert "1 of 2 elements of output 'y' are NaN, of which agreement says nothing" in done.err


def test_a_program_from_the_cache_is_told_about_too(strata: Run) -> None:
    words = prepare(LOG, 1, -2)
    for _ in range(2):
        done = strata("run", *words, "--cache", "cache")
        assert "has 1 of 2 elements that are NaN" in done.err
