// PASSES: host-bufferize,host-plan-buffers,loop-to-block,block-enclose-loops
// TARGET: cuda sm_90
// A loop that data end, with the number of its iteration in what it computes, and programs of a
// grid of two axes; then nested branches, of which one returns what it is given.
builtin.module {
  // CHECK: host.func @main
  // CHECK-NOT: strata.loop
  // CHECK-NOT: strata.if
  // CHECK: host.launch @loop_0
  // CHECK: host.launch @branch_1
  // CHECK: host.return
  // CHECK-NOT: host.func
  // CHECK: block.kernel @loop_0({{.*}}) grid()
  // CHECK: block.for %{{.*}} = 0 to 2147483647 step 1 while (%goes_on
  // CHECK-NEXT: block.barrier
  // CHECK-NEXT: block.for %{{.*}} = 0 to 6 step 1 {
  // CHECK-NEXT: block.for %{{.*}} = (%{{.*}} mod 2) to (%{{.*}} mod 2) + 1 step 1
  // CHECK: block.index %step + 1
  // CHECK: block.barrier
  // CHECK-NOT: block.kernel @branch_0
  // CHECK: block.kernel @branch_1
  // CHECK: block.for %{{.*}} = 0 to 1 step 1 while
  // CHECK: block.for %{{.*}} = 0 to 1 step 1 while
  // CHECK: block.for %{{.*}} = 0 to 1 step 1 while
  // CHECK: block.for %{{.*}} = 0 to 1 step 1 while
  strata.func @main(%x: f32[40, 20]) -> (f32[40, 20], i64[], f32[40, 20]) inputs ["x"] outputs ["v", "count", "chosen"] {
    %0 = loop.call @is_small(%x) sizes() : i1[]
    %1 = loop.call @zero() sizes() : i64[]
    %2, %3 = strata.loop @turn at step while %0 carried(%x, %1) with(%x) : f32[40, 20], i64[]
    %4 = loop.call @is_small(%2) sizes() : i1[]
    %5 = strata.if %4 then @same else @other (%2, %x) : f32[40, 20]
    strata.return %2, %3, %5
  }
  strata.func @turn(%v: f32[40, 20], %n: i64[], %x: f32[40, 20]) -> (i1[], f32[40, 20], i64[]) sizes(step) inputs ["v", "n", "x"] outputs ["r0", "r1", "r2"] {
    %0, %1 = loop.call @grow(%v, %x) sizes(step) : f32[40, 20], i64[]
    %2 = loop.call @is_small(%0) sizes() : i1[]
    strata.return %2, %0, %1
  }
  strata.func @same(%a: f32[40, 20], %b: f32[40, 20]) -> (f32[40, 20]) inputs ["a", "b"] outputs ["r"] {
    strata.return %a
  }
  strata.func @other(%a: f32[40, 20], %b: f32[40, 20]) -> (f32[40, 20]) inputs ["a", "b"] outputs ["r"] {
    %0 = loop.call @is_small(%b) sizes() : i1[]
    %1 = strata.if %0 then @doubled else @same (%b, %a) : f32[40, 20]
    strata.return %1
  }
  strata.func @doubled(%a: f32[40, 20], %b: f32[40, 20]) -> (f32[40, 20]) inputs ["a", "b"] outputs ["r"] {
    %0 = loop.call @add(%a, %b) sizes() : f32[40, 20]
    strata.return %0
  }
  loop.kernel @zero() -> (i64[]) sizes() schedule< | tails = mask, warps = 1> {
    %0 = loop.nest () ins() outs(i64[][]) {
      %1 = arith.constant 0 : i64
      loop.yield %1
    }
    loop.yield %0
  }
  loop.kernel @is_small(%x: f32[40, 20]) -> (i1[]) sizes() schedule<whole i0 tile 64, whole i1 tile 32 | tails = mask, warps = 4> {
    %0 = loop.nest (reduce i0: 40, reduce i1: 20) ins(%x[i0, i1]) outs(max f32[][]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    %1 = loop.nest () ins(%0[]) outs(i1[][]) {
    ^bb0(%p: f32):
      %2 = arith.constant 9.000000e+00 : f32
      %3 = arith.cmpf olt, %p, %2 : f32
      loop.yield %3
    }
    loop.yield %1
  }
  loop.kernel @grow(%v: f32[40, 20], %x: f32[40, 20]) -> (f32[40, 20], i64[]) sizes(step) schedule<grid i0 tile 16, grid i1 tile 16 | tails = mask, warps = 2> {
    %0 = loop.nest (i0: 40, i1: 20) ins(%v[i0, i1], %x[i0, i1]) outs(f32[40, 20][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %1 = math.absf %q : f32
      %2 = arith.constant 5.000000e-01 : f32
      %3 = arith.addf %1, %2 : f32
      %4 = arith.addf %p, %3 : f32
      loop.yield %4
    }
    %5 = loop.nest () ins() outs(i64[][]) {
      %6 = loop.index step + 1 : index
      %7 = arith.index_cast %6 : index to i64
      loop.yield %7
    }
    loop.yield %0, %5
  }
  loop.kernel @add(%a: f32[40, 20], %b: f32[40, 20]) -> (f32[40, 20]) sizes() schedule<grid i0 tile 16, grid i1 tile 32 | tails = mask, warps = 4> {
    %0 = loop.nest (i0: 40, i1: 20) ins(%a[i0, i1], %b[i0, i1]) outs(f32[40, 20][i0, i1]) {
    ^bb0(%p: f32, %q: f32):
      %1 = arith.addf %p, %q : f32
      loop.yield %1
    }
    loop.yield %0
  }
}
