// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-6
// Rows in parallel; columns in vector lanes: full tiles, then a tail. The loop is cut where a nest
// needs a finished reduction, and the exponentials are computed in both loops that want them.
builtin.module {
  // CHECK: block.kernel @softmax(%x: f32[rows, 100], %y: f32[rows, 100]) grid(%i0: rows) sizes(rows)
  // CHECK-NEXT: block.full -inf : tile<[64]xf32>
  // CHECK-NEXT: block.load %x[%i0, t0] : tile<[64]xf32>
  // CHECK: arith.maximumf
  // The masked tail reads what leaves a maximum as it is.
  // CHECK: block.load %x[%i0, t0 + 64] check [1] pad -inf : tile<[64]xf32>
  // CHECK: block.reduce max
  // CHECK: block.full 0.0 : tile<[64]xf32>
  // CHECK: math.exp
  // What is summed is no plain load: positions beyond the end are masked.
  // CHECK: block.valid t0 + 64 < 100 : tile<[64]xi1>
  // CHECK: block.reduce add
  // CHECK: block.store %{{.*}}, %y[%i0, t0]
  // CHECK: tile<[36]xf32>
  // CHECK: block.store %{{.*}}, %y[%i0, t0 + 64]
  // CHECK: block.yield
  strata.func @main(%x: f32[rows, 100]) -> (f32[rows, 100]) inputs ["x"] outputs ["y"] {
    %y = loop.call @softmax(%x) sizes(rows) : f32[rows, 100]
    strata.return %y
  }
  loop.kernel @softmax(%x: f32[rows, 100]) -> (f32[rows, 100]) sizes(rows) schedule<grid i0 tile 1, loop i1 tile 64 lanes> {
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
