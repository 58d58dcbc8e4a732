// PASSES: host-bufferize,host-plan-buffers
// A chain of four buffers: kernels that read single elements compute in place, @turn cannot.
builtin.module {
  // CHECK: host.func @main({{.*}}) inputs ["x"] outputs ["y"] sizes() arena(512) {
  // CHECK-NEXT: %a = host.alloc offset 0 : f32[6, 8]
  // CHECK-NEXT: host.launch @double(%x, %a)
  // CHECK-NEXT: %b = host.alloc offset 0 : f32[6, 8]
  // CHECK-NEXT: host.launch @double(%a, %b)
  // CHECK-NEXT: %c = host.alloc offset 256 : f32[6, 8]
  // CHECK-NEXT: host.launch @turn(%b, %c)
  // CHECK-NEXT: %d = host.alloc offset 256 : f32[6, 8]
  // CHECK-NEXT: host.launch @double(%c, %d)
  // CHECK-NEXT: host.launch @turn(%d, %y)
  strata.func @main(%x: f32[6, 8]) -> (f32[6, 8]) inputs ["x"] outputs ["y"] {
    %a = loop.call @double(%x) sizes() : f32[6, 8]
    %b = loop.call @double(%a) sizes() : f32[6, 8]
    %c = loop.call @turn(%b) sizes() : f32[6, 8]
    %d = loop.call @double(%c) sizes() : f32[6, 8]
    %y = loop.call @turn(%d) sizes() : f32[6, 8]
    strata.return %y
  }
  loop.kernel @double(%x: f32[6, 8]) -> (f32[6, 8]) sizes() {
    %y = loop.nest (i0: 6, i1: 8) ins(%x[i0, i1]) outs(f32[6, 8][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.addf %p, %p : f32
      loop.yield %r
    }
    loop.yield %y
  }
  loop.kernel @turn(%x: f32[6, 8]) -> (f32[6, 8]) sizes() {
    %y = loop.nest (i0: 6, i1: 8) ins(%x[5 - i0, i1]) outs(f32[6, 8][i0, i1]) {
    ^bb0(%p: f32):
      loop.yield %p
    }
    loop.yield %y
  }
}
