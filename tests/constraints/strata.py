"""Texts that violate the constraints of the operations that all levels share."""

FUNCTION = """
strata.func @f(%a: f32[4]) -> (f32[4]) inputs ["a"] outputs ["b"] {
  strata.return %a
}
strata.func @main(%x: f32[4], %n: i64[1], %f: f32[1], %c: i1[]) -> ()
    inputs ["x", "n", "f", "c"] outputs [] {
  LINE
  strata.return
}
"""
DRIVER = """
host.func @main(%n: i64[2]) inputs ["n"] outputs [] sizes() {
  LINE
  host.return
}
"""

_LINES = [
    ("strata.size", "C1: strata.size reads i64 elements, not f32", "strata.size m = %f"),
    ("strata.size", "C2: strata.size names 2 sizes of 1 elements", "strata.size m, q = %n"),
    ("strata.require", "C1: strata.require needs integers, not f32",
     "strata.require 0 <= %x < 3"),
    ("strata.require", "C2: strata.require with `farthest` needs one i64",
     "strata.size m = %n %i = graph.cast %x {to = i64} : i64[4] "
     "strata.require 0 <= farthest %i < 3"),
    ("strata.trap", "C1: strata.trap needs one i64", 'strata.trap %f ["load"]'),
    *((op, message, form.replace("CALLED", called).replace("RESULT", result))
      for op, form in (
          ("strata.if", "%y = strata.if %c then @f else @f (CALLED) RESULT"),
          ("strata.loop", "%y = strata.loop @f at k trip 2 carried(CALLED) with() RESULT"),
          ("strata.call", "%y = strata.call @f number 1 of [] (CALLED) RESULT"))
      for message, called, result in (
          ("C1: the operands do not fit the arguments of @f", "%n", ": i64[1]"),
          ("C2: @f does not return the results of", "%x", ": f32[4, 4]"),
          ("C3: the size z is not a dim of a result", "%x", "defines(z) : f32[4]"))),
    ("strata.if", "C4: the condition of strata.if must be i1[]",
     "%y = strata.if %n then @f else @f (%x) : f32[4]"),
    ("strata.loop", "C4: strata.loop has neither a trip count nor a condition",
     "%y = strata.loop @f at k carried(%x) with() : f32[4]"),
    ("strata.loop", "C5: the condition of strata.loop must be i1[]",
     "%y = strata.loop @f at k while %n carried(%x) with() : f32[4]"),
    ("strata.func", "C3: nothing defines the size m of graph.range",
     "%y = graph.range {start = 0, step = 1, count = m, to = i64} : i64[m]"),
]

CASES = [
    *((op, message, FUNCTION.replace("LINE", line)) for op, message, line in _LINES),
    ("strata.require", "C2: at the host level, strata.require needs one i64",
     DRIVER.replace("LINE", "strata.require 0 <= %n < 3")),
    ("strata.func", "C1: strata.func needs one input name per argument",
     'strata.func @main(%x: f32[4]) -> () inputs [] outputs [] { strata.return }'),
    ("strata.func", "C1: strata.func needs one output name per result",
     'strata.func @main(%x: f32[4]) -> (f32[4]) inputs ["x"] outputs [] { strata.return %x }'),
    ("strata.func", "C2: strata.func must end in strata.return",
     'strata.func @main(%x: f32[4]) -> () inputs ["x"] outputs [] { %y = graph.exp %x : f32[4] }'),
    ("strata.func", "C2: strata.return must return",
     'strata.func @main(%x: f32[4]) -> (f32[5]) inputs ["x"] outputs ["y"] { strata.return %x }'),
]
