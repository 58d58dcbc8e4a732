"""Texts that violate the constraints of the loop level."""

_FUNCTION = """
strata.func @main(%x: f32[4, 6], %i: i64[4], %d: f32[4]) -> ()
    inputs ["x", "i", "d"] outputs [] {
  LINE
  strata.return
}
"""
_BODY = "{ ^bb0(%p: f32): loop.yield %p }"


def _nest(axes: str, read: str, write: str, body: str = _BODY) -> str:
    return f"%y = loop.nest ({axes}) ins({read}) outs({write}) {body}"


_KERNEL = f"""
loop.kernel @k(%x: f32[m]) -> (f32[m]) sizes(m) {{
  %y = loop.nest (i0: m) ins(%x[i0]) outs(f32[m][i0]) {_BODY}
  loop.yield %y
}}
"""
_CALLS = [
    ("C1: loop.call calls @j, and the module has no such kernel", "@j(%d) sizes(4) : f32[4]"),
    ("C1: loop.call calls @main, which is a strata.func", "@main(%d) sizes(4) : f32[4]"),
    ("C2: loop.call passes 0 sizes to @k, which takes 1", "@k(%d) sizes() : f32[4]"),
    ("C2: loop.call passes 2 sizes to @k, which takes 1", "@k(%d) sizes(4, 4) : f32[4]"),
    ("C3: loop.call calls @k with i64[4], f32[4], and it is defined for f32[m], f32[m]",
     "@k(%i) sizes(4) : f32[4]"),
    ("C3: loop.call calls @k with f32[4, 6], f32[4]", "@k(%x) sizes(4) : f32[4]"),
    ("C3: loop.call calls @k with f32[4], f32[4], f32[4]", "@k(%d, %d) sizes(4) : f32[4]"),
    ("C3: loop.call calls @k with f32[4], i64[4]", "@k(%d) sizes(4) : i64[4]"),
]

_LINES = [
    ("loop.view", "C1: loop.view of f32[4, 6], which has 24 elements",
     "%v = loop.view %x : f32[23]"),
    ("loop.nest", "C1: loop.nest indexes f32[4, 6] with 1 expressions",
     _nest("i0: 4", "%x[i0]", "f32[4][i0]")),
    ("loop.nest", "C2: a result of loop.nest is indexed by a reduce axis",
     _nest("reduce i0: 4, reduce i1: 6", "%x[i0, i1]", "add f32[4][i0]")),
    ("loop.nest", "C2: all points along the parallel axis i1 of loop.nest write the same",
     _nest("i0: 4, i1: 6", "%x[i0, i1]", "f32[4][i0]")),
    ("loop.nest", "C3: loop.nest must combine exactly when it has reduce axes",
     _nest("i0: 4, reduce i1: 6", "%x[i0, i1]", "f32[4][i0]")),
    ("loop.nest", "C3: loop.nest must combine exactly when it has reduce axes",
     _nest("i0: 4", "%d[i0]", "add f32[4][i0]")),
    ("loop.nest", "C4: loop.nest reads i0 + 1 of f32[4]",
     _nest("i0: 4", "%d[i0 + 1]", "f32[4][i0]")),
    ("loop.nest", "C4: loop.nest reads i0 - 1 of f32[4]",
     _nest("i0: 4", "%d[i0 - 1]", "f32[4][i0]")),
    ("loop.nest", "C4: loop.nest writes i0 + 1 of f32[4]",
     _nest("i0: 4", "%d[i0]", "f32[4][i0 + 1]")),
    ("loop.nest", "C5: the body of loop.nest must take its inputs' element types",
     _nest("i0: 4", "%i[i0]", "f32[4][i0]")),
    ("loop.nest", "C5: the body of loop.nest must yield its results' element types",
     _nest("i0: 4", "%d[i0]", "f16[4][i0]")),
    ("loop.nest", "C6: loop.nest has no axis i7", _nest("i0: 4", "%d[i7]", "f32[4][i0]")),
    ("loop.nest", "C6: loop.nest has no axis i7", _nest(
        "i0: 4", "%d[i0]", "f32[4][i0]", "{ ^bb0(%p: f32): %k = loop.index i7 : index "
        "loop.yield %p }")),
    ("loop.nest", "C6: in0 of loop.nest is not an input of integers",
     _nest("i0: 4", "%d[i0], %d[in0]", "f32[4][i0]",
           "{ ^bb0(%p: f32, %q: f32): loop.yield %q }")),
    ("loop.nest", "C6: in1 of loop.nest is not an input of integers",
     _nest("i0: 4", "%d[i0]", "f32[4][in1]", "into(%d) " + _BODY)),
    ("loop.nest", "C7: a loop.nest that scatters must write into a tensor",
     _nest("i0: 4", "%i[i0], %d[i0]", "f32[4][in0]",
           "{ ^bb0(%q: i64, %p: f32): loop.yield %p }")),
    ("loop.nest", "C12: a total loop.nest must be a scatter that stores",
     _nest("i0: 4", "%d[i0]", "f32[4][i0]", "into(%d) total " + _BODY)),
    ("loop.nest", "C12: a total loop.nest must be a scatter that stores",
     _nest("i0: 4", "%i[i0], %d[i0]", "add f32[4][in0]",
           "into(%d) total { ^bb0(%q: i64, %p: f32): loop.yield %p }")),
    ("loop.nest", "C10: a recurrence of loop.nest must have one reduce axis",
     _nest("reduce i0: 4, reduce i1: 6", "%d[0], %x[i0, i1]", "next f32[][]",
           "{ ^bb0(%p: f32, %q: f32): loop.yield %q }")),
    ("loop.nest", "C10: a recurrence of loop.nest must have one reduce axis",
     _nest("reduce i0: 4", "%d[0], %d[i0]", "next f32[4][i0]",
           "{ ^bb0(%p: f32, %q: f32): loop.yield %q }")),
    ("loop.nest", "C10: the first input of a recurrence of loop.nest must be its state",
     _nest("reduce i0: 4", "%d[i0]", "next f32[][]")),
    ("loop.nest", "C10: the first input of a recurrence of loop.nest must be its state",
     _nest("reduce i0: 4", "%i[0], %d[i0]", "next f32[][]",
           "{ ^bb0(%p: i64, %q: f32): loop.yield %q }")),
    ("loop.nest", "C11: a loop.nest that sorts must be a scan of integers",
     _nest("reduce i0: 4", "%d[i0]", "sort f32[4][i0]")),
    ("loop.nest", "C13: a loop.nest with `inside` must add up one result",
     _nest("reduce i0: 4", "%d[i0]", "max f32[][]", "inside([i0 - 1, 2]) " + _BODY)),
    ("loop.nest", "C8: loop.nest must write into one tensor of its result's type",
     _nest("i0: 4", "%d[i0]", "f32[4][i0]", "into(%x) " + _BODY)),
    ("loop.nest", "C7: a loop.nest that scatters must have one result",
     "%y, %z = loop.nest (i0: 4) ins(%i[i0], %d[i0]) outs(f32[4][in0], f32[4][in0]) "
     "into(%d) { ^bb0(%q: i64, %p: f32): loop.yield %p, %p }"),
]

CASES = [
    *((op, message, _FUNCTION.replace("LINE", line)) for op, message, line in _LINES),
    *(("loop.call", message, _KERNEL + _FUNCTION.replace("LINE", f"%y = loop.call {call}"))
      for message, call in _CALLS),
    ("loop.nest", "C9: loop.nest has no combiner 'sub'", """
"builtin.module"() ({
  %x = loop.empty : f32[4]
  %y = "loop.nest"(%x) <{axes = #loop.axes(reduce i0: 4), maps = [#strata.sizes<[i0]>],
      pads = [#strata.literal<[]>], combiners = ["sub"], result_maps = [#strata.sizes<[]>]}> ({
  ^bb0(%p: f32):
    "loop.yield"(%p) : (f32) -> ()
  }) : (!strata.tensor<f32[4]>) -> !strata.tensor<f32[]>
}) : () -> ()"""),
    ("loop.kernel", "C1: axis i0 has extents 4 and 3", f"""
loop.kernel @k(%x: f32[4]) -> (f32[4], f32[3]) sizes() {{
  %y = loop.nest (i0: 4) ins(%x[i0]) outs(f32[4][i0]) {_BODY}
  %z = loop.nest (i0: 3) ins(%x[i0]) outs(f32[3][i0]) {_BODY}
  loop.yield %y, %z
}}"""),
    ("loop.kernel", "C2: loop.kernel must end in loop.yield", """
loop.kernel @k(%x: f32[4]) -> (f32[4]) sizes() { %y = loop.view %x : f32[4] }"""),
    ("loop.kernel", "C2: loop.kernel must hold only nests, views, empty "
     "tensors and loop.visible, not graph.exp", """
loop.kernel @k(%x: f32[4]) -> (f32[4]) sizes() {
  %y = graph.exp %x : f32[4]
  loop.yield %y
}"""),
    ("loop.visible", "C1: loop.visible takes tensors of i32 with one dim per "
     "expression, not i64[4]", """
loop.kernel @k(%x: f32[4], %f: i64[4], %l: i32[4]) -> (f32[4]) sizes() {
  loop.visible i0 from %f to %l [i0]
  loop.yield %x
}"""),
    ("loop.kernel", "C3: loop.kernel does not name the sizes n", """
loop.kernel @k(%x: f32[m, n]) -> (f32[m*n]) sizes(m) {
  %y = loop.view %x : f32[m*n]
  loop.yield %y
}"""),
    ("loop.kernel", "C3: loop.kernel does not name the sizes q", f"""
loop.kernel @k(%x: f32[m]) -> (f32[m]) sizes(m) {{
  %y = loop.nest (i0: m) ins(%x[i0 + q] pad 0.0) outs(f32[m][i0]) {_BODY}
  loop.yield %y
}}"""),
]
