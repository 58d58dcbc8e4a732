// PASSES: loop-fuse
// Of a view without elements, any index is read, as long as it keeps the axis that is empty: a sum that lost it would be
// computed once for all, and read what is not there.
builtin.module {
  // CHECK: loop.nest (i0: 0, reduce i3: 2) ins(%x[i0, 0, 0]) outs(add f32[0][i0])
  strata.func @main(%x: f32[0, 8, 8]) -> (f32[0, 8, 4]) inputs ["x"] outputs ["y"] {
    %v = loop.view %x : f32[0, 8, 4, 2]
    %y = loop.nest (i0: 0, i1: 8, i2: 4, reduce i3: 2) ins(%v[i0, i1, i2, i3]) outs(add f32[0, 8, 4][i0, i1, i2]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    strata.return %y
  }
}
