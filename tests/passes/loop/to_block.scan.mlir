// PASSES: host-bufferize,loop-to-block
// TOLERANCE: 1e-5
// Running sums: a tile that holds the rows is scanned; a loop adds what came before each step. What
// is beyond the end of an axis counts as nothing. One element at a time needs no scan.
builtin.module {
  // CHECK: block.kernel @held
  // CHECK: block.load %x[3*%i0 + t0, t1] check [0, 1] pad 0 : tile<3x16xf32>
  // CHECK: block.scan add {{.*}} dim 1 : tile<3x16xf32>
  // CHECK-NOT: block.for
  // CHECK: block.kernel @walked
  // CHECK: block.for %i1 = 0 to 13 step 4 (
  // CHECK: block.scan add {{.*}} dim 1 : tile<3x4xf32>
  // CHECK: block.reduce add {{.*}} dim 1 : tile<3xf32>
  // CHECK: block.store
  // CHECK: block.kernel @single
  // CHECK: block.for %i1 = 0 to 13 step 1 (
  // CHECK-NOT: block.scan
  // CHECK: block.store
  strata.func @main(%x: f32[5, 13]) -> (f32[5, 13], f32[5, 13], f32[5, 13]) inputs ["x"] outputs ["y", "z", "w"] {
    %y = loop.call @held(%x) sizes() : f32[5, 13]
    %z = loop.call @walked(%x) sizes() : f32[5, 13]
    %w = loop.call @single(%x) sizes() : f32[5, 13]
    strata.return %y, %z, %w
  }
  loop.kernel @held(%x: f32[5, 13]) -> (f32[5, 13]) sizes() schedule<grid i0 tile 3, whole i1 tile 16 | tails = mask> {
    %s = loop.nest (i0: 5, reduce i1: 13) ins(%x[i0, i1]) outs(add f32[5, 13][i0, i1]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    %y = loop.nest (i0: 5, i1: 13) ins(%s[i0, i1], %x[i0, i1]) outs(f32[5, 13][i0, i1]) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.subf %a, %b : f32
      loop.yield %c
    }
    loop.yield %y
  }
  loop.kernel @walked(%x: f32[5, 13]) -> (f32[5, 13]) sizes() schedule<grid i0 tile 3, loop i1 tile 4 | tails = mask> {
    %s = loop.nest (i0: 5, reduce i1: 13) ins(%x[i0, i1]) outs(add f32[5, 13][i0, i1]) {
    ^bb0(%a: f32):
      %b = arith.mulf %a, %a : f32
      loop.yield %b
    }
    %y = loop.nest (i0: 5, i1: 13) ins(%s[i0, i1]) outs(f32[5, 13][i0, i1]) {
    ^bb0(%a: f32):
      %c = arith.negf %a : f32
      loop.yield %c
    }
    loop.yield %y
  }
  loop.kernel @single(%x: f32[5, 13]) -> (f32[5, 13]) sizes() schedule<grid i0 tile 1, loop i1 tile 1> {
    %s = loop.nest (i0: 5, reduce i1: 13) ins(%x[i0, -i1 + 12]) outs(mul f32[5, 13][i0, -i1 + 12]) {
    ^bb0(%a: f32):
      loop.yield %a
    }
    loop.yield %s
  }
}
