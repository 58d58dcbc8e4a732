"""Texts that violate the constraints of the block level."""

_KERNEL = """
block.kernel @k(%x: f32[4, 64], %i: i64[4], %y: f32[n], %z: i1[4]) grid(%p: 4) sizes(n) {
  %a = block.load %x[%p, t0] : tile<64xf32>
  %l = block.load %x[%p, t0] : tile<[64]xf32>
  %h = block.full 0.0 : tile<64xf16>
  %m = block.full 0.0 : tile<(32x32)xf32>
  %o = block.load %z[t0] : tile<4xi1>
  %u = block.full 0.0 : tile<2x64xf32>
  LINE
  block.yield
}
"""
_BODY = "{ ^bb0(%e: f32): block.yield %e }"

_LINES = [
    ("block.for", "C1: block.for must carry, yield and return the same types",
     "%r = block.for %q = 0 to 4 step 1 (%c = %a) { block.yield %h }"),
    ("block.for", "C2: the step of block.for must be at least 1",
     "block.for %q = 0 to 4 step 0 { block.yield }"),
    ("block.for", "C3: a parallel block.for must not carry values",
     "%r = block.for %q = 0 to 4 step 1 parallel (%c = %a) { block.yield %c }"),
    ("block.for", "C4: block.for with `while` must carry a tile<i1> first",
     "%r = block.for %q = 0 to 4 step 1 while (%c = %a) { block.yield %c }"),
    ("block.load", "C1: block.load needs 2 index expressions",
     "%r = block.load %x[t0] : tile<4xf32>"),
    ("block.load", "C2: block.load at t0 is outside dim 1 of f32[4, 64], and not checked",
     "%r = block.load %x[%p, t0] : tile<65xf32>"),
    ("block.load", "C2: block.load at t0 - 1 is outside dim 0",
     "%r = block.load %x[t0 - 1, 0] : tile<2xf32>"),
    ("block.load", "C2: block.load at 64 is outside dim 1",
     "block.for %q = 0 to 4 step 1 { %r = block.load %x[%q, 64] : tile<f32> block.yield }"),
    ("block.store", "C1: block.store needs 2 index expressions", "block.store %a, %x[t0]"),
    ("block.store", "C2: block.store at t0 + 1 is outside dim 1", "block.store %a, %x[%p, t0 + 1]"),
    ("block.store", "C3: block.store cannot combine elements of i1 by add",
     "block.store add %o, %z[t0]"),
    ("block.prefetch", "C1: block.prefetch needs 2 index expressions", "block.prefetch %x[%p]"),
    ("block.map", "C1: block.map reads (64,) as dims (0,) of (32,)",
     f"%r = block.map (%a[0]) : tile<32xf32> {_BODY}"),
    ("block.map", "C2: the body of block.map must take its inputs' element types",
     f"%r = block.map (%h[0]) : tile<64xf32> {_BODY}"),
    ("block.map", "C2: the body of block.map must yield its results' element types",
     f"%r = block.map (%a[0]) : tile<64xf16> {_BODY}"),
    ("block.map", "C3: block.map cannot compute in matrix registers",
     f"%r = block.map (%m[0, 1]) : tile<(32x32)xf32> {_BODY}"),
    ("block.reduce", "C1: block.reduce must keep all dims but one",
     "%r = block.reduce add %u dim 0 : tile<2xf32>"),
    ("block.reduce", "C2: block.reduce has no combiner 'sub'",
     "%r = block.reduce sub %u dim 0 : tile<64xf32>"),
    ("block.scan", "C3: block.scan has no combiner 'sub'",
     "%r = block.scan sub %u dim 0 : tile<2x64xf32>"),
    ("block.scan", "C1: block.scan must keep the type of its operand",
     "%r = block.scan add %u dim 0 : tile<2x32xf32>"),
    ("block.scan", "C2: block.scan must scan a dim of the tile that is not in lanes",
     "%r = block.scan add %l dim 0 : tile<[64]xf32>"),
    ("block.all_reduce", "C1: block.all_reduce must keep the type of a tile without lanes",
     '%r = block.all_reduce %l {group = #strata.group<"g", [[0, 1]]>} : tile<[64]xf32>'),
    ("block.all_reduce", "C2: block.all_reduce cannot sum elements of i1",
     '%r = block.all_reduce %o {group = #strata.group<"g", [[0, 1]]>} : tile<4xi1>'),
    ("block.dot", "C1: block.dot of", "%r = block.dot %u, %u, %u ieee : tile<2x64xf32>"),
    ("block.dot", "C2: block.dot of", "%f = block.full 0.0 : tile<32x32xf32> "
     "%r = block.dot %m, %f, %m ieee : tile<(32x32)xf32>"),
    ("block.convert", "C1: block.convert must change only the layout",
     "%r = block.convert %h : tile<[64]xf32>"),
]

CASES = [
    *((op, message, _KERNEL.replace("LINE", line)) for op, message, line in _LINES),
    ("block.kernel", "C1: block.kernel needs one program id per grid extent", """
"block.kernel"() <{sym_name = "k", grid = #strata.sizes<[4, 2]>, sizes = #strata.symbols<()>}> ({
^bb0(%p: index):
  "block.yield"() : () -> ()
}) : () -> ()"""),
    ("block.kernel", "C2: block.kernel does not name the sizes n", """
block.kernel @k(%x: f32[m, n]) grid(%p: m) sizes(m) { block.yield }"""),
    ("block.kernel", "C2: block.kernel does not name the sizes m", """
block.kernel @k(%x: f32[4]) grid(%p: m) sizes() { block.yield }"""),
    ("block.kernel", "C2: block.kernel does not name the sizes q", """
block.kernel @k(%x: f32[4]) grid(%p: 4) sizes() {
  block.for %c = 0 to q step 1 { block.yield }
  block.yield
}"""),
]
