// Every operation of the host level, in every form of its text.
builtin.module {
  host.func @main(%x: f32[batch, 64], %mask: i1[batch], %y: f32[batch, 8]) inputs ["x", "attention mask"] outputs ["y:0"] sizes(batch) arena(256*batch + 512) {
    %w = host.constant #strata.weight<"fc.weight", "3f2a"> : f32[64, 8]
    %c = host.constant literal[1.0, nan, -inf, 0.5] : f32[2, 2]
    %h = host.alloc offset 0 : f32[batch, 64]
    %g = host.alloc offset 256*batch : ui8[512]
    %own = host.alloc : bf16[2*batch + 1]
    %v = host.view %h : f32[64*batch]
    %part = host.part %h[64*batch - 64] : f32[1, 64]
    host.launch @k0(%x, %mask, %v) sizes(batch)
    host.launch @k1(%h, %w, %c, %y) sizes(batch, 2*batch)
    host.copy %x, %h
    host.foreign_launch %x, %h {kernel = "grow", source = "@triton.jit\0Adef grow(x, y, n): ...\0A", call = "x={0}, y={1}, n={2}", sizes = [batch], grid = [batch, 2], warps = 4, stages = 3, written = 1}
    host.return
  }
  host.func @late(%x: f32[batch, 64], %y: f32[batch]) inputs ["x"] outputs ["found": f32[m, 64], "y", "n": i64[1]] sizes(batch) arena(0) {
    %n = host.alloc : i64[1]
    %z = host.alloc : f32[batch]
    host.launch @count(%x, %n, %y, %z) sizes(batch) when min(1, batch floordiv 8)
    host.free %z
    strata.require 0 <= farthest %n < 2*batch of "input ids"
    strata.require 1 <= %n < batch + 1
    strata.require 0 <= farthest %n < 1 divisors
    strata.trap %n ["block.load leaves dim 0 of x", "block.store leaves \"y\""]
    strata.size m = %n
    %f = host.alloc : f32[m, 64]
    host.launch @find(%x, %f) sizes(batch, m)
    host.return %f, %n
  }
  host.func @empty() inputs [] outputs [] sizes() {
    host.return
  }
  block.kernel @k0(%x: f32[b, 64], %mask: i1[b], %v: f32[64*b]) grid(%p: 1) sizes(b) {
    block.yield
  }
  block.kernel @k1(%h: f32[b, 64], %w: f32[64, 8], %c: f32[2, 2], %y: f32[b, 8]) grid(%p: 1) sizes(b, m) {
    block.yield
  }
  block.kernel @count(%x: f32[b, 64], %n: i64[1], %y: f32[b], %z: f32[b]) grid(%p: 1) sizes(b) {
    block.yield
  }
  block.kernel @find(%x: f32[b, 64], %f: f32[m, 64]) grid(%p: 1) sizes(b, m) {
    block.yield
  }
}
