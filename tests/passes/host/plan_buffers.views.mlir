// PASSES: host-bufferize,host-plan-buffers{in-place=false}
// A buffer lives as long as its views; sizes that are multiples of one symbol are planned exactly.
builtin.module {
  // CHECK: host.func @main({{.*}}) inputs ["x"] outputs ["y"] sizes(b) arena(768*b) {
  // CHECK-NEXT: %a = host.alloc offset 0 : f32[b, 64]
  // CHECK-NEXT: host.launch @double(%x, %a) sizes(b)
  // CHECK-NEXT: %v = host.view %a : f32[64*b]
  // CHECK-NEXT: %c = host.alloc offset 256*b : f32[b, 64]
  // CHECK-NEXT: host.launch @double(%a, %c) sizes(b)
  // CHECK-NEXT: %d = host.alloc offset 512*b : f32[b, 64]
  // CHECK-NEXT: host.launch @double(%c, %d) sizes(b)
  strata.func @main(%x: f32[b, 64]) -> (f32[64*b]) inputs ["x"] outputs ["y"] {
    %a = loop.call @double(%x) sizes(b) : f32[b, 64]
    %v = loop.view %a : f32[64*b]
    %c = loop.call @double(%a) sizes(b) : f32[b, 64]
    %d = loop.call @double(%c) sizes(b) : f32[b, 64]
    %w = loop.view %d : f32[64*b]
    %e = loop.call @add(%v, %w) sizes(64*b) : f32[64*b]
    strata.return %e
  }
  loop.kernel @double(%x: f32[b, 64]) -> (f32[b, 64]) sizes(b) {
    %y = loop.nest (i0: b, i1: 64) ins(%x[i0, i1]) outs(f32[b, 64][i0, i1]) {
    ^bb0(%p: f32):
      %r = arith.addf %p, %p : f32
      loop.yield %r
    }
    loop.yield %y
  }
  loop.kernel @add(%x: f32[n], %z: f32[n]) -> (f32[n]) sizes(n) {
    %y = loop.nest (i0: n) ins(%x[i0], %z[i0]) outs(f32[n][i0]) {
    ^bb0(%p: f32, %q: f32):
      %r = arith.addf %p, %q : f32
      loop.yield %r
    }
    loop.yield %y
  }
}
