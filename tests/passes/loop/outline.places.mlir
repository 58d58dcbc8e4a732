// PASSES: loop-outline
// A scatter's kernel computes its places, also where they take several nests, of which some read at
// other points than they write. Of places that something else reads, too, there is a kernel.
builtin.module {
  // CHECK: strata.func @main
  // CHECK-NEXT: loop.call @scatter_0(
  // CHECK-NEXT: %q = loop.call @map_1(
  // CHECK-NEXT: loop.call @scatter_2(%q,
  // CHECK-NEXT: strata.return
  strata.func @main(%x: f32[5, 8], %w: f32[5, 8], %i: i32[5, 8], %j: i32[5, 8]) -> (f32[5, 8], f32[5, 8], i32[5, 8]) inputs ["x", "w", "i", "j"] outputs ["y", "z", "q"] {
    %a = loop.nest (i0: 5, i1: 8) ins(%i[i0, i1], %j[i0, in0]) outs(i32[5, 8][i0, i1]) {
    ^bb0(%0: i32, %1: i32):
      loop.yield %1
    }
    %b = loop.nest (i0: 5, i1: 8) ins(%j[i0, i1], %i[i0, in0]) outs(i32[5, 8][i0, i1]) {
    ^bb1(%2: i32, %3: i32):
      loop.yield %3
    }
    %p = loop.nest (i0: 5, i1: 8) ins(%a[i0, i1], %b[i0, i1]) outs(i32[5, 8][i0, i1]) {
    ^bb2(%4: i32, %5: i32):
      %6 = arith.addi %4, %5 : i32
      loop.yield %6
    }
    %y = loop.nest (i0: 5, i1: 8) ins(%p[i0, i1], %x[i0, i1]) outs(f32[5, 8][i0, in0]) into(%w) {
    ^bb3(%7: i32, %8: f32):
      loop.yield %8
    }
    %c = loop.nest (i0: 5, i1: 8) ins(%i[i0, i1], %i[i0, in0]) outs(i32[5, 8][i0, i1]) {
    ^bb4(%9: i32, %10: i32):
      loop.yield %10
    }
    %q = loop.nest (i0: 5, i1: 8) ins(%c[i0, i1], %j[i0, i1]) outs(i32[5, 8][i0, i1]) {
    ^bb5(%11: i32, %12: i32):
      %13 = arith.addi %11, %12 : i32
      loop.yield %13
    }
    %z = loop.nest (i0: 5, i1: 8) ins(%q[i0, i1], %x[i0, i1]) outs(f32[5, 8][i0, in0]) into(%w) {
    ^bb6(%14: i32, %15: f32):
      loop.yield %15
    }
    strata.return %y, %z, %q
  }
}
