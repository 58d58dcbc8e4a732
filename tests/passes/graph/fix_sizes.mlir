// PASSES: graph-fix-sizes{names="a","b","elsewhere" values=3,4,9}
// Sizes of the inputs become numbers, in types, attributes and assumptions.
builtin.module {
  // CHECK: strata.func @main(%x: f32[3, 4], %y: f32[c, 7], %go: i1[]) -> (f32[3, 4], f32[10], i64[2])
  // CHECK-NEXT: strata.assume 3 <= c
  // CHECK-NEXT: %s = graph.sizes {values = [12, c], shape = [2], to = i64} : i64[2]
  // CHECK-NEXT: %z = graph.slice %y {starts = [0, 0], sizes = [1, 7], steps = [1, 1]} : f32[1, 7]
  // CHECK-NEXT: %q = graph.reshape %z {shape = [7]} : f32[7]
  // CHECK-NEXT: %p = graph.pad %q {low = [0], high = [3], mode = "constant"} : f32[10]
  // CHECK-NEXT: %r = strata.if %go then @square else @double (%x) : f32[3, 4]
  strata.func @main(%x: f32[a, b], %y: f32[c, a + b], %go: i1[]) -> (f32[a, b], f32[a + b + 3], i64[2])
      inputs ["x", "y", "go"] outputs ["r", "p", "s"] {
    strata.assume a <= b
    strata.assume a <= c
    %s = graph.sizes {values = [a*b, c], shape = [2], to = i64} : i64[2]
    %z = graph.slice %y {starts = [0, 0], sizes = [1, a + b], steps = [1, 1]} : f32[1, a + b]
    %q = graph.reshape %z {shape = [a + b]} : f32[a + b]
    %p = graph.pad %q {low = [0], high = [3], mode = "constant"} : f32[a + b + 3]
    %r = strata.if %go then @square else @double (%x) : f32[a, b]
    strata.return %r, %p, %s
  }
  // Sizes of a function that is called stay its own, whatever they are called.
  // CHECK: strata.func @square(%x: f32[a, q]) -> (f32[a, q])
  strata.func @square(%x: f32[a, q]) -> (f32[a, q]) inputs ["x"] outputs ["y"] {
    %y = graph.mul %x, %x : f32[a, q]
    strata.return %y
  }
  // CHECK: strata.func @double(%x: f32[p, q]) -> (f32[p, q])
  strata.func @double(%x: f32[p, q]) -> (f32[p, q]) inputs ["x"] outputs ["y"] {
    %y = graph.add %x, %x : f32[p, q]
    strata.return %y
  }
}
