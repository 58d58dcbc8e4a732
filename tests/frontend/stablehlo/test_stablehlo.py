"""Programs in StableHLO against NumPy, and texts that cannot be read."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import ImportOptions
from compiler.frontend.stablehlo.importer import import_text
from compiler.frontend.stablehlo.ops import importers
from tests.frontend.stablehlo.more_programs import MORE
from tests.frontend.stablehlo.programs import PROGRAMS, Program


def check(program: Program, path: Path, target: str, inputs: list[Any], **options: Any) -> None:
    path.write_text(program.text)
    exe = compiler.compile(path, target=target, cache="off", threads=1, **options)
    want = program.truth(*inputs)
    wanted = want if isinstance(want, tuple) else (want,)
    for a, b in zip(exe(*inputs), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", [*PROGRAMS, *MORE])
def test_program(name: str, tmp_path: Path) -> None:
    program = {**PROGRAMS, **MORE}[name]
    check(program, tmp_path / "f.mlir", "reference", program.inputs())


@pytest.mark.parametrize("name", ["softmax of a product", "order", "sums at places", "a loop",
                                  "gradient of a pool", "bits", "any reduction"])
def test_program_on_the_cpu(name: str, tmp_path: Path) -> None:
    program = {**PROGRAMS, **MORE}[name]
    check(program, tmp_path / "f.mlir", "cpu", program.inputs())


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_open_sizes(rows: int, tmp_path: Path) -> None:
    """Sizes of a call, and one that the user fixes."""
    program, x = PROGRAMS["open sizes"], np.ones((rows, 3), np.float32)
    check(program, tmp_path / "f.stablehlo", "reference", [x])
    check(program, tmp_path / "f.mlir", "reference", [x], dims={"x_0": rows})


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 3, 9])
def test_every_branch(index: int, tmp_path: Path) -> None:
    """Any other number takes the last branch."""
    x = np.array([-1.0, 2.0, -3.0, 4.0], np.float32)
    check(PROGRAMS["four branches"], tmp_path / "f.mlir", "reference",
          [np.array(index, np.int32), x])


def test_notes_about_devices(tmp_path: Path) -> None:
    """Meshes and shardings say nothing about results."""
    path = tmp_path / "f.mlir"
    path.write_text("""
module @f attributes {mhlo.num_partitions = 1 : i32} {
  sdy.mesh @empty = <[]> {stablehlo.mesh = {axes = []}}
  sdy.mesh @two = <["a"=2, "b"=1], device_ids=[1, 0]>
  func.func public @main(%x: tensor<2xf32> {sdy.sharding = #sdy.sharding<@two, [{"a"}]>})
      -> (tensor<2xf32>) {
    %0 = sdy.sharding_constraint %x <@empty, [{?}]> : tensor<2xf32>
    %1 = stablehlo.custom_call @Sharding(%0) {backend_config = "",
        sdy.sharding = #sdy.sharding_per_value<[<@two, [{"a", ?}]>]>} : (tensor<2xf32>) -> tensor<2xf32>
    %2 = stablehlo.reduce_precision %1, format = e5m10 : tensor<2xf32>
    return %2 : tensor<2xf32>
  }
}""")  # noqa: E501
    x = np.array([1 / 3, -5.0], np.float32)
    [found] = compiler.compile(path, target="reference", cache="off")(x)
    np.testing.assert_array_equal(found, x.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("rows", [0, 1, 4])
@pytest.mark.parametrize(("how", "start", "truth"), [
    ("or", "false", np.any), ("and", "true", np.all)])
def test_truth_of_rows(how: str, start: str, truth: Any, rows: int, tmp_path: Path) -> None:
    """Of none, as `jnp.any` and `jnp.all` reduce it, the start remains."""
    x, path = np.arange(rows * 2).reshape(rows, 2) > 3, tmp_path / "f.mlir"
    path.write_text(f"""
module {{
  func.func public @main(%x: tensor<{rows}x2xi1>) -> (tensor<2xi1>) {{
    %c = stablehlo.constant dense<{start}> : tensor<i1>
    %0 = stablehlo.reduce(%x init: %c) applies stablehlo.{how} across dimensions = [0] :
        (tensor<{rows}x2xi1>, tensor<i1>) -> tensor<2xi1>
    return %0 : tensor<2xi1>
  }}
}}""")
    [found] = compiler.compile(path, target="reference", cache="off")(x)
    np.testing.assert_array_equal(found, truth(x, 0))


def test_what_jax_lowers_is_a_model(monkeypatch: Any) -> None:
    """An object of JAX that tells its text."""
    module = ModuleType("jax.stages")
    program = PROGRAMS["calls"]
    lowered = type("Lowered", (), {"as_text": lambda self: program.text,
                                   "__module__": module.__name__})()
    [x] = program.inputs()
    exe = compiler.compile(lowered, target="reference")
    np.testing.assert_allclose(exe(x)[0], program.truth(x))


BAD = {
    "the module has no function": "module { }",
    "elements of complex": "func.func @main(%x: tensor<2xcomplex<f16>>) { return }",
    "operation stablehlo.rng is not supported (1 uses)": """func.func @main(%x: tensor<2xf32>)
        -> tensor<2xf32> {
      %0 = "stablehlo.rng"(%x) : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32> }""",
    "the text says f32[3]": """func.func @main(%x: tensor<2xf32>) -> tensor<3xf32> {
      %0 = stablehlo.add %x, %x : tensor<3xf32>
      return %0 : tensor<3xf32> }""",
    "there is no function g": """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.negate %x : tensor<2xf32>
      %1 = call @g(%0) : (tensor<2xf32>) -> tensor<2xf32>
      return %1 : tensor<2xf32> }""",
    "expected '='": "func.func @main(%x: tensor<2xf32>) { %0 stablehlo.add %x, %x }",
    "it calls lapack_sgeev_ffi": """func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %0 = stablehlo.custom_call @lapack_sgeev_ffi(%x) : (tensor<2x2xf32>) -> tensor<2x2xf32>
      return %0 : tensor<2x2xf32> }""",
    "it calls a function of Python": """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {mhlo.backend_config =
          {index = 0 : ui64}} : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32> }""",
    "its comparator does not order": """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %p = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }) : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32> }""",
    "its option uplo is 3": """func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%x) {mhlo.backend_config = {uplo = 3 : ui8}} :
          (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>)
      return %0#0 : tensor<2x2xf32> }""",
    "matrices of order 40 are not supported": """func.func @main(%x: tensor<40x40xf32>)
        -> tensor<40x40xf32> {
      %0 = stablehlo.cholesky %x, lower = true : tensor<40x40xf32>
      return %0 : tensor<40x40xf32> }""",
    "no value %y is known here": """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.add %x, %y : tensor<2xf32>
      return %0 : tensor<2xf32> }""",
    "no value %inner is known here": """func.func @main(%x: tensor<2xf32>) -> tensor<f32> {
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = "stablehlo.reduce"(%x, %c) <{dimensions = array<i64: 0>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %inner = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %inner : tensor<f32>
      }) : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
      %1 = stablehlo.add %0, %inner : tensor<f32>
      return %1 : tensor<f32> }""",
    "%0 is defined twice": """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.negate %x : tensor<2xf32>
      %0 = stablehlo.negate %x : tensor<2xf32>
      return %0 : tensor<2xf32> }""",
    "does not end with a return": """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.negate %x : tensor<2xf32> }""",
    "returns 2 values, and declares 1": """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.negate %x : tensor<2xf32>
      return %0, %0 : tensor<2xf32>, tensor<2xf32> }""",
    "the function declares f32[3]": """func.func @main(%x: tensor<2xf32>) -> tensor<3xf32> {
      %0 = stablehlo.negate %x : tensor<2xf32>
      return %0 : tensor<2xf32> }""",
    "g takes 2 arguments, not 1": """module {
      func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.negate %x : tensor<2xf32>
      %1 = call @g(%0) : (tensor<2xf32>) -> tensor<2xf32>
      return %1 : tensor<2xf32> }
      func.func private @g(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<2xf32> {
      return %a : tensor<2xf32> } }""",
}


@pytest.mark.parametrize("message", BAD)
def test_what_cannot_be_read(message: str, tmp_path: Path) -> None:
    """The message says what and where."""
    path = tmp_path / "f.mlir"
    path.write_text(BAD[message] + "\n// stablehlo.text")
    with pytest.raises(StrataError) as error:
        compiler.compile(path, target="reference")
    assert message in str(error.value) and "line" in str(error.value)


def changed_texts(seed: int) -> Iterator[str]:
    """Programs with words left out, numbers and types changed, or cut off."""
    rng, texts = random.Random(seed), [p.text for p in (*PROGRAMS.values(), *MORE.values())]
    for text in texts:
        for _ in range(8):
            places = [*re.finditer(r"\d+|%\w+|[a-z_]+|[][<>(){}:,=]|tensor<[^>]*>", text)]
            at = rng.choice(places)
            new = rng.choice(("", "-1", "7", str(10 ** 20), "[", ">", '"', "tensor<*xf32>",
                              "tensor<?x3xi32>", "%none", rng.choice(text.split())))
            yield text[:at.start()] + new + text[at.end():]
        yield text[:rng.randrange(len(text))]


def test_changed_texts_are_refused() -> None:
    """Nothing but StrataError, with a line; a text that still verifies is imported."""
    refused = 0
    for text in [*changed_texts(1), "module { func.func @main(%x: " + "[" * 10000]:
        try:
            import_text(text, "f", "f.mlir", ImportOptions())
        except StrataError as error:
            refused += 1
            assert "line" in str(error) or "input" in str(error), error
    assert refused > 100


def test_constants_larger_than_the_memory(tmp_path: Path) -> None:
    """One number for all elements is not written out, and a wrong number of them is refused."""
    path = tmp_path / "f.mlir"
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
      %0 = stablehlo.constant dense<{}> : tensor<3000000x3000000xf32>
      %1 = stablehlo.slice %0 [0:1, 0:2] : (tensor<3000000x3000000xf32>) -> tensor<1x2xf32>
      %2 = stablehlo.reshape %1 : (tensor<1x2xf32>) -> tensor<2xf32>
      %3 = stablehlo.add %x, %2 : tensor<2xf32>
      return %3 : tensor<2xf32> }}"""
    path.write_text(text.format("1.5"))
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(compiler.compile(path, target="reference")(x)[0], x + 1.5)
    path.write_text(text.format('"0x0000C03F0000C03F"'))
    with pytest.raises(StrataError, match="8 bytes"):
        compiler.compile(path, target="reference")


def test_programs_use_most_operations() -> None:
    used = {name for name in importers() for p in (*PROGRAMS.values(), *MORE.values())
            if f"{name} " in p.text or f'"{name}"' in p.text or f"{name}(" in p.text}
    assert len(used) > 60
