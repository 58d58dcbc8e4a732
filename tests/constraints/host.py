"""Texts that violate the constraints of the host level."""

_DRIVER = """
host.func @main(%x: f32[4], %i: i64[4], %y: f32[n]) inputs ["x", "i"] outputs ["y"] sizes(n) {
  LINE
  host.return
}
"""

_KERNEL = """
block.kernel @k(%x: f32[m], %y: f32[4]) grid(%p: 1) sizes(m) { block.yield }
"""
_LAUNCHES = [
    ("C1: host.launch calls @j, and the module has no such kernel", "@j(%x, %x) sizes(4)"),
    ("C1: host.launch calls @main, which is a host.func", "@main(%x, %x) sizes(4)"),
    ("C2: host.launch passes 0 sizes to @k, which takes 1", "@k(%x, %x) sizes()"),
    ("C3: host.launch calls @k with f32[4], i64[4], and it is defined for f32[m], f32[4]",
     "@k(%x, %i) sizes(4)"),
    ("C3: host.launch calls @k with f32[4]", "@k(%x) sizes(4)"),
    ("C3: host.launch calls @k with f32[4], f32[5]",
     "@k(%x, %b) sizes(4)"),
]

CASES = [
    *(("host.launch", message, _KERNEL + _DRIVER.replace(
        "LINE", f"%b = host.alloc : f32[5] host.launch {launch}"))
      for message, launch in _LAUNCHES),
    ("host.func", "C1: host.func needs one name per argument",
     'host.func @main(%x: f32[4]) inputs [] outputs [] sizes() { host.return }'),
    ("host.func", "C2: host.func must end in host.return",
     'host.func @main(%x: f32[4]) inputs ["x"] outputs [] sizes() { host.free %x }'),
    ("host.func", "C2: host.return must return the outputs that have types",
     'host.func @main(%x: f32[4]) inputs ["x"] outputs ["y": f32[5]] sizes() { host.return %x }'),
    *((op, message, _DRIVER.replace("LINE", line)) for op, message, line in (
        ("host.collective", "C1: 'all_mix' is not one of",
         'host.collective all_mix %x, %x {group = #strata.group<"g", [[0, 1]]>}'),
        ("host.collective", "C2: all_gather of 2 ranks",
         'host.collective all_gather %x, %x {group = #strata.group<"g", [[0, 1]]>}'),
        ("host.foreign_launch", "C1: it writes 2 of 1 buffers",
         'host.foreign_launch %x {kernel = "k", source = "", call = "{0}", sizes = [], grid = [1], '
         'warps = 4, stages = 3, written = 2}'),
        ("host.foreign_launch", "C2: there is no kernel @none",
         'host.foreign_launch %x {kernel = "k", source = "", call = "{0}", sizes = [], grid = [1], '
         'warps = 4, stages = 3, written = 1, instead = "none", instead_sizes = []}'),
        ("host.view", "C1: host.view changes the element type of f32[4] to i64",
         "%v = host.view %x : i64[4]"),
        ("host.view", "C1: host.view of f32[4], which has 4 elements",
         "%v = host.view %x : f32[5]"),
        ("host.view", "C1: host.view of f32[n], which has n elements",
         "%v = host.view %y : f32[n + 1]"),
        ("host.part", "C1: host.part changes the element type of f32[4] to i64",
         "%v = host.part %x[0] : i64[2]"),
        ("host.part", "C2: host.part of f32[4] from element 3 on has no f32[2]",
         "%v = host.part %x[3] : f32[2]"),
        ("host.part", "C2: host.part of f32[4] from element -1 on has no f32[2]",
         "%v = host.part %x[-1] : f32[2]"),
        ("host.copy", "C1: host.copy changes the element type", "host.copy %i, %x"),
        ("host.copy", "C1: host.copy of f32[4], which has 4 elements",
         "%a = host.alloc : f32[3] host.copy %x, %a"))),
]
