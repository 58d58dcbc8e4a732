// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-6
// Exponentials are worth more than 8 operations: the loop that sums them up keeps them in memory of
// the program, with no room beyond the end, and the last loop reads them there.
builtin.module {
  // CHECK: block.kernel @softmax(%x: f32[rows, 100], %y: f32[rows, 100]) grid(%i0: rows) sizes(rows)
  // CHECK-NEXT: %e = block.scratch : f32[128]
  // CHECK: block.reduce max
  // CHECK: math.exp
  // CHECK: block.store %{{.*}}, %e[t0]
  // CHECK: math.exp
  // CHECK: block.store %{{.*}}, %e[t0 + 64]
  // CHECK: block.reduce add
  // CHECK-NEXT: block.load %e[t0] : tile<[64]xf32>
  // CHECK-NOT: math.exp
  // CHECK: block.store %{{.*}}, %y[%i0, t0]
  // CHECK: block.load %e[t0 + 64] : tile<[36]xf32>
  // CHECK: block.store %{{.*}}, %y[%i0, t0 + 64]
  strata.func @main(%x: f32[rows, 100]) -> (f32[rows, 100]) inputs ["x"] outputs ["y"] {
    %y = loop.call @softmax(%x) sizes(rows) : f32[rows, 100]
    strata.return %y
  }
  loop.kernel @softmax(%x: f32[rows, 100]) -> (f32[rows, 100]) sizes(rows) schedule<grid i0 tile 1, loop i1 tile 64 lanes | keep = 8> {
    %m = loop.nest (i0: rows, reduce i1: 100) ins(%x[i0, i1]) outs(max f32[rows][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %e = loop.nest (i0: rows, i1: 100) ins(%x[i0, i1], %m[i0]) outs(f32[rows, 100][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %d = arith.subf %p, %q : f32
      %v = math.exp %d : f32
      loop.yield %v
    }
    %s = loop.nest (i0: rows, reduce i1: 100) ins(%e[i0, i1]) outs(add f32[rows][i0]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %y = loop.nest (i0: rows, i1: 100) ins(%e[i0, i1], %s[i0]) outs(f32[rows, 100][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %v = arith.divf %p, %q : f32
      loop.yield %v
    }
    loop.yield %y
  }
}
