"""The Triton source of kernels: its structure, its limits, and that it is the same every time."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

from dialects.strata.types import f32
from dialects.text.syntax import location
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.emit import EmitError, EmitOptions, emit_kernel
from targets.cuda.emit.values import number_text
from tests.filecheck import filecheck
from tests.targets.cuda import samples
from tests.targets.cuda.samples import SAMPLES, Sample, kernel_of, parse

each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=[s.name for s in SAMPLES])


def emit(text: str, options: EmitOptions | None = None) -> str:
    return emit_kernel(kernel_of(text), options).text


@each_sample
def test_the_source_is_python_and_the_same_every_time(sample: Sample) -> None:
    text = emit(sample.text)
    assert text == emit(sample.text)
    functions = [f.name for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)]
    assert functions[-1] == sample.name
    assert "constexpr" not in text and "make_block_ptr" not in text


def test_softmax() -> None:
    filecheck("""
// CHECK: import triton
// CHECK: def larger(a, b):
// CHECK-NEXT: return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
// CHECK: # kernel @softmax, grid({{.*}})
// CHECK-NEXT: # schedule<grid i0 tile 2, whole i1 tile 1024 | warps = 4>
// CHECK-NEXT: @triton.jit
// CHECK-NEXT: def softmax(x, y, n):
// CHECK-NEXT: r2 = tl.arange(0, 2)
// CHECK-NEXT: r1024 = tl.arange(0, 1024)
// CHECK-NEXT: r = tl.program_id(0)
// CHECK-NEXT: v = tl.load(x + ((2*r + r2[:, None])*1000 + r1024[None, :]),
// CHECK-SAME: mask=(2*r + r2[:, None] < n) & (r1024[None, :] < 1000), other=-float("inf"))
// CHECK-NEXT: m = tl.reduce(v, 1, larger)
// CHECK-NEXT: e = exp_f32(v - m[:, None])
// CHECK-NEXT: w = tl.broadcast_to(r1024[None, :] < 1000, [2, 1024])
// CHECK-NEXT: z = tl.where(w, e, 0.0)
// CHECK-NEXT: s = tl.sum(z, 1)
// CHECK-NEXT: q = tl.div_rn(e, s[:, None])
// CHECK-NEXT: tl.store(
// CHECK-SAME: , q, mask=(2*r + r2[:, None] < n) & (r1024[None, :] < 1000))
""", emit(samples.SOFTMAX))


def test_matmul_divides_the_flat_grid_and_pipelines_its_loop() -> None:
    filecheck("""
// CHECK: program = tl.program_id(0)
// CHECK-NEXT: pm = program // 3
// CHECK-NEXT: pn = program % 3
// CHECK: for i in tl.range(0, k, 32, num_stages=3):
// CHECK: d = tl.dot(a, b, c, input_precision="ieee", out_dtype=tl.float32)
// CHECK-NEXT: c = d
""", emit(samples.matmul("f16", 32, 32, 32)))


def test_only_checks_that_ranges_leave_open_become_masks() -> None:
    text = emit(samples.CONVOLUTION)
    load = next(line for line in text.splitlines() if "tl.load(X" in line)
    assert "// 196) < b" in load and ">= 0" in load  # the padding of the rows and columns
    assert "// 196) >= 0" not in load  # a batch index is never negative
    assert "mask" not in next(line for line in text.splitlines() if "tl.load(W" in line)


def test_division_of_what_may_be_negative_floors() -> None:
    text = emit(samples.UPSAMPLE)
    assert "((3 - r16) % 7 + 7) % 7" in text
    assert "tl.minimum(6, r16)" in text


def test_more_axes_than_a_cuda_grid_has() -> None:
    filecheck("""
// CHECK: a = program // 30
// CHECK-NEXT: b = (program // 15) % 2
// CHECK-NEXT: c = (program // 3) % 5
// CHECK-NEXT: d = program % 3
""", emit(samples.FOUR_AXES))


def test_carried_values_change_all_at_once() -> None:
    filecheck("""
// CHECK: for k in range(0, 5, 1):
// CHECK: s = p + q
// CHECK-NEXT: p = q
// CHECK-NEXT: q = s
""", emit(samples.SWAP))
    exchange = samples.SWAP.replace("block.yield %q, %s", "block.yield %q, %p")
    filecheck("""
// CHECK: last_p = p
// CHECK-NEXT: p = q
// CHECK-NEXT: q = last_p
""", emit(exchange))


def test_truth_values_are_bytes_in_memory() -> None:
    text = emit(samples.TRUTHS)
    assert re.search(r"b = tl\.load\(m .* other=0\) != 0", text)
    assert "r.to(tl.int8)" in text


def test_large_buffers_are_indexed_in_64_bits() -> None:
    text = """
block.kernel @copy(%x: f32[70000, 40000], %y: f32[64]) grid(%p: 70000) sizes() {
  %v = block.load %x[%p, t0] : tile<64xf32>
  block.store %v, %y[t0]
  block.yield
}"""
    assert "tl.cast(p, tl.int64)*40000" in emit(text)
    assert "int64" not in emit(samples.TRANSPOSE)
    assert "tl.int64" in emit(samples.TRANSPOSE, EmitOptions(wide=True))


def test_names_do_not_clash_with_python_or_helpers() -> None:
    text = emit("""
block.kernel @lambda(%tl: f32[8], %larger: f32[1]) grid() sizes(while) {
  %float = block.load %tl[t0] : tile<8xf32>
  %larger_2 = block.reduce max %float dim 0 : tile<f32>
  block.store %larger_2, %larger[0]
  block.yield
}""")
    ast.parse(text)
    assert "tl.reduce(float_2, 0, larger)" in text


def test_nodes_of_the_model_are_named() -> None:
    kernel = kernel_of(samples.SWAP)
    for op in kernel.walk():
        op.location = location("/encoder/layer.0/Add")
    assert "# from /encoder/layer.0/Add" in emit_kernel(kernel).text


# ---------------------------------------------------------------------- errors
def body(operations: str, head: str = "%x: f32[64]") -> str:
    return f"block.kernel @bad({head}) grid() sizes() {{ {operations} block.yield }}"


@pytest.mark.parametrize(("text", "message"), [
    (body("%v = block.load %x[t0] : tile<48xf32>"), "tile of 48, but Triton needs powers of two"),
    (body("%s = block.scratch : f32[8]"), "block.scratch is memory of one CPU program"),
    (body("""%a = block.full 0.0 : tile<8x16xf32>
             %b = block.full 0.0 : tile<16x16xf32>
             %c = block.full 0.0 : tile<8x16xf32>
             %d = block.dot %a, %b, %c ieee : tile<8x16xf32>"""), "at least 16"),
    (body("""%a = block.full 0 : tile<16x16xi32>
             %b = block.full 0 : tile<16x16xi32>
             %c = block.full 0 : tile<16x16xi32>
             %d = block.dot %a, %b, %c ieee : tile<16x16xi32>"""), "block.dot of i32 by i32"),
    (body("""%a = block.full 0 : tile<16x16xi8>
             %c = block.full 0 : tile<16x16xi32>
             %d = block.dot %a, %a, %c ieee : tile<16x16xi32>"""), "at least 32 elements of i8"),
    (body("""%a = block.full 0 : tile<32x32xi8>
             %c = block.full 0 : tile<32x32xi32>
             %d = block.dot %a, %a, %c ieee unsigned [1] : tile<32x32xi32>"""), "only signed"),
    (body("""%a = block.full 0 : tile<16xi32>
             %b = block.map (%a[0]) : tile<16xi32> {
             ^bb0(%p: i32):
               %q = math.ctpop %p : i32
               block.yield %q
             }"""), "math.ctpop has no form in Triton"),
])
def test_what_has_no_form_is_an_error_that_names_the_kernel(text: str, message: str) -> None:
    with pytest.raises(EmitError, match=re.escape(message)) as error:
        emit(text)
    assert "@bad" in str(error.value)


def test_the_module_shows_how_kernels_are_launched() -> None:
    softmax = samples.SOFTMAX.strip()
    module = parse(f"""builtin.module {{ {softmax}
      host.func @main(%x: f32[n, 1000], %y: f32[n, 1000]) inputs ["x"] outputs ["y"] sizes(n) {{
        host.launch @softmax(%x, %y) sizes(n)
        host.return
      }} }}""")
    text = TARGET.bind(TargetOptions()).emission.emit(module, "triton")
    ast.parse(text)
    filecheck("""
// CHECK: def softmax(x, y, n):
// CHECK: # How the kernels are launched:
// CHECK: # host.func @main
// CHECK: # host.launch @softmax(%x, %y) sizes(n)
""", text)
    with pytest.raises(ValueError, match="no level 'llvm'"):
        TARGET.bind(TargetOptions()).emission.emit(module, "llvm")


@pytest.mark.parametrize("sign", [1, -1])
def test_no_number_of_f32_looks_larger_than_all_of_them(sign: int) -> None:
    """Triton makes an f64 of it."""
    largest = sign * float(np.finfo(np.float32).max)
    assert abs(float(number_text(largest, f32))) <= abs(largest)
    assert np.float32(number_text(largest, f32)) == np.float32(largest)


def test_places_that_are_quotients_are_compared_before_they_are_divided() -> None:
    """Triton knows how many neighbours agree about `x < 36`, but not about `x // 9 < 4`."""
    text = emit("""builtin.module {
  block.kernel @k(%x: f32[4, 9], %y: f32[48]) grid(%i0: 3) sizes() {
    %a = block.load %x[(16*%i0 + t0) floordiv 9, (16*%i0 + t0) mod 9] check [0] pad 0 : tile<16xf32>
    block.store %a, %y[16*%i0 + t0]
    block.yield
  }
}""")
    assert "mask=(16*i0 + r16 < 36)" in text
