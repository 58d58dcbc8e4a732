// PASSES: host-bufferize,loop-to-block
// Groups of a summed axis: whole ones, then one that is cut off, of which the packed factor holds
// zeros already. The counter is a multiple of the group, so that divisions of it stay out of tiles.
builtin.module {
  // CHECK: block.kernel @product({{.*}}) grid(%i1: 3) sizes(m)
  // CHECK: block.full 0 : tile<2x[16]xi32>
  // CHECK-NEXT: block.for %i2 = 0 to 8 step 4 unroll 2 ({{.*}}) {
  // CHECK-NEXT: block.load %a[%i0 + t0, %i2 + t1] : tile<2x{4}xi8>
  // CHECK-NEXT: block.load %b[%i1, (%i2 floordiv 4), t1, t0] : tile<{4}x[16]xi8>
  // CHECK-NEXT: block.dot %{{.*}}, %{{.*}}, %{{.*}} ieee unsigned [0] : tile<2x[16]xi32>
  // CHECK: block.load %a[%i0 + t0, t1 + 8] check [1] pad 0 : tile<2x{4}xi8>
  // CHECK-NEXT: block.load %b[%i1, 2, t1, t0] : tile<{4}x[16]xi8>
  // CHECK-NEXT: block.dot
  strata.func @main(%a: ui8[m, 10], %b: i8[3, 3, 16, 4]) -> (i32[m, 48]) inputs ["a", "b"] outputs ["y"] {
    %y = loop.call @product(%a, %b) sizes(m) : i32[m, 48]
    strata.return %y
  }
  loop.kernel @product(%a: ui8[m, 10], %b: i8[3, 3, 16, 4]) -> (i32[m, 48]) sizes(m) schedule<grid i1 tile 16 lanes, loop i0 tile 2, loop i2 tile 4 unroll 2 group> {
    %y = loop.nest (i0: m, i1: 48, reduce i2: 10) ins(%a[i0, i2], %b[(i1 floordiv 16), (i2 floordiv 4), (i1 mod 16), (i2 mod 4)]) outs(add i32[m, 48][i0, i1]) {
    ^bb0(%p: i8, %q: i8):
      %u = arith.extui %p : i8 to i32
      %v = arith.extsi %q : i8 to i32
      %w = arith.muli %u, %v : i32
      loop.yield %w
    }
    loop.yield %y
  }
}
