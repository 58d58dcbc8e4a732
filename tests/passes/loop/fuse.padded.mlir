// PASSES: loop-fuse
// A read through a view that only adds dims of one element keeps its indices, also where they leave the tensor: the
// distance of taps is the height here, so that its remainder alone would be the row itself for all of them.
builtin.module {
  // CHECK: strata.func @main
  // CHECK: %y = loop.nest (i0: 2, i1: 2, reduce i2: 3, reduce i3: 3) ins(%x[0, 0, i0 + 2*i2 - 2, i1 + 2*i3 - 2] pad 0.0)
  // CHECK: strata.return %y
  strata.func @main(%x: f32[1, 1, 2, 2]) -> (f32[2, 2]) inputs ["x"] outputs ["y"] {
    %v = loop.view %x : f32[1, 2, 2]
    %y = loop.nest (i0: 2, i1: 2, reduce i2: 3, reduce i3: 3) ins(%v[0, i0 + 2*i2 - 2, i1 + 2*i3 - 2] pad 0.0) outs(add f32[2, 2][i0, i1]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    strata.return %y
  }
}
