"""What the host passes refuse, and what they say."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.host import LaunchOp, host_function
from dialects.symbolic.expr_syntax import expr_of
from dialects.verifying import verify
from passes.analyses.host.storage import kernels_of
from passes.base import PassError, StrataContext
from passes.host.plan_buffers import can_share, report
from tests.passes.harness import parse, run_passes

ADD = """^bb0(%p: f32, %q: f32):
      %s = arith.addf %p, %q : f32
      loop.yield %s"""
ONE = """^bb0(%p: f32):
      loop.yield %p"""


def kernel(body: str) -> ModuleOp:
    """A kernel of two 4x4 arguments; the body yields `%y`."""
    text = f"""builtin.module {{
      loop.kernel @k(%a: f32[4, 4], %b: f32[4, 4]) -> (f32[4, 4]) sizes() {{
        {body}
        loop.yield %y
      }}
    }}"""
    return parse(text, StrataContext.with_dialects())


def nest(ins: str, body: str, outs: str = "f32[4, 4][i0, i1]", axes: str = "i0: 4, i1: 4") -> str:
    return f"loop.nest ({axes}) ins({ins}) outs({outs}) {{\n{body}\n}}"


@pytest.mark.parametrize(("body", "shares"), [
    (f"%y = {nest('%a[i0, i1], %b[i0, i1]', ADD)}", True),
    (f"%y = {nest('%a[i0, i1], %a[i0, i1]', ADD)}", True),
    (f"%y = {nest('%a[i0, i1], %a[i1, i0]', ADD)}", False),
    (f"%y = {nest('%a[i1, i0], %b[i0, i1]', ADD)}", False),
    (f"%y = {nest('%a[i0, i1] pad 0.0, %b[i0, i1]', ADD)}", False),
    (f"%y = {nest('%b[i0, i1]', ONE)}", False),
    # another nest reads the argument
    (f"%c = {nest('%a[i0, i1]', ONE)}\n%y = {nest('%a[i0, i1], %c[i0, i1]', ADD)}", False),
    # another nest reads the result
    (f"%y = {nest('%a[i0, i1]', ONE)}\n%c = {nest('%y[i0, i1], %b[i0, i1]', ADD)}", False),
    # a sum over i2 reads the argument again
    (f"%y = {nest('%a[i0, i1], %b[i1, i2]', ADD, 'add f32[4, 4][i0, i1]', 'i0: 4, i1: 4, reduce i2: 4')}",  # noqa: E501
     False),
])
def test_in_place(body: str, shares: bool) -> None:
    module = kernel(body)
    verify(module)
    assert can_share(kernels_of(module)["k"], 0, 0) == shares


CALL = """builtin.module {
  strata.func @main(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
    %a = graph.exp %x : f32[n]
    %y = loop.call @missing(%a) sizes(n) : f32[n]
    strata.return %y
  }
}"""


def test_bufferize_names_what_has_no_buffer() -> None:
    context = StrataContext.with_dialects()
    with pytest.raises(PassError) as error:
        run_passes(Parser(context, CALL).parse_module(), "host-bufferize", context)
    assert str(error.value).splitlines() == [
        "host-bufferize:", "graph.exp has no buffers: lower it to kernels first",
        "there is no loop.kernel @missing"]


HOST = """builtin.module {
  host.func @main(%x: f32[n, m], %y: f32[n, m]) inputs ["x"] outputs ["y"] sizes(n, m) {
    %a = host.alloc : f32[n, m]
    %b = host.alloc : f32[n, m]
    host.launch @first(%x, %a) sizes(n, m)
    host.launch @second(%a, %b) sizes(m, n)
    host.launch @first(%b, %y) sizes(n, m)
    host.return
  }
  loop.kernel @first(%x: f32[p, q]) -> (f32[p, q]) sizes(p, q) {
    %y = loop.nest (i0: p, i1: q) ins(%x[i0, i1]) outs(f32[p, q][i0, i1]) {
    ^bb0(%v: f32):
      loop.yield %v
    }
    loop.yield %y
  }
  loop.kernel @second(%x: f32[r, s]) -> (f32[r, s]) sizes(s, r) {
    %y = loop.nest (i0: r, i1: s) ins(%x[i0, i1]) outs(f32[r, s][i0, i1]) {
    ^bb0(%v: f32):
      loop.yield %v
    }
    loop.yield %y
  }
}"""


def test_launches_follow_merged_kernels() -> None:
    context = StrataContext.with_dialects()
    module = parse(HOST, context)
    run_passes(module, "loop-deduplicate-kernels", context)
    launches = [op for op in host_function(module).body.block.ops if isinstance(op, LaunchOp)]
    assert [x.kernel.data for x in launches] == ["first"] * 3
    assert {str(x.sizes) for x in launches} == {"#strata.sizes<[n, m]>"}


def test_the_plan_is_reported() -> None:
    context = StrataContext.with_dialects()
    run_passes(parse(HOST, context), "host-plan-buffers{in-place=false}", context)
    assert [r.text for r in context.remarks] == [
        "arena of 32768 bytes holds buffers of 32768 bytes in total (with m, n = 64)"]


def test_sizes_below_those_that_a_model_accepts_are_not_reported() -> None:
    size = expr_of("4*n - 4000")
    assert report(size, size) == "arena whose size depends on n"
