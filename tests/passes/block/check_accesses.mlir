// PASSES: host-bufferize,loop-to-block,block-check-accesses{always=true}
// Dims that are not checked yet are, and where one is left its number is stored; launches hand a word.
builtin.module {
  // CHECK: host.func @main
  // CHECK-NEXT: host.constant literal[0] : i64[1]
  // CHECK-NEXT: host.alloc : i64[1]
  // CHECK-NEXT: host.copy
  // CHECK-NEXT: host.launch @take(%x, %i, %y, %{{.*}}) sizes(n)
  // CHECK-NEXT: strata.trap %{{.*}} ["block.load leaves dim 0 of i, of type i64[n], in kernel @take{{.*}}", "block.load leaves dim 0 of x, {{.*}}", "block.store leaves dim 0 of y, {{.*}}"]
  // CHECK-NEXT: host.free
  // CHECK: block.kernel @take(%x: f32[n, 40], %i: i64[n], %y: f32[n, 40], %fault: i64[1])
  // CHECK-NEXT: block.index %i0 : tile<index>
  // CHECK-NEXT: block.index n : tile<index>
  // CHECK: arith.cmpi uge
  // CHECK: block.store {{.*}}, %fault[{{.*}}] check [0]
  // CHECK-NEXT: block.load %i[%i0] check [0] pad 0 : tile<i64>
  // A dim that is checked, and left, says nothing of the others.
  // CHECK: block.index t0 : tile<[64]xindex>
  // CHECK: arith.cmpi uge
  // CHECK: arith.cmpi ult
  // CHECK: block.reduce max
  // CHECK: block.load %x[{{.*}}, t0] check [0, 1] pad 0 : tile<64xf32>
  // CHECK: block.store {{.*}}, %y[%i0, t0] check [0, 1]
  strata.func @main(%x: f32[n, 40], %i: i64[n]) -> (f32[n, 40]) inputs ["x", "i"] outputs ["y"] {
    %y = loop.call @take(%x, %i) sizes(n) : f32[n, 40]
    strata.return %y
  }
  loop.kernel @take(%x: f32[n, 40], %i: i64[n]) -> (f32[n, 40]) sizes(n) schedule<grid i0 tile 1, whole i1 tile 64 | tails = mask> {
    %y = loop.nest (i0: n, i1: 40) ins(%i[i0], %x[in0, i1]) outs(f32[n, 40][i0, i1]) {
    ^bb0(%p: i64, %v: f32):
      loop.yield %v
    }
    loop.yield %y
  }
}
