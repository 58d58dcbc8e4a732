// Control flow and late sizes, on tensors and on buffers.
builtin.module {
  strata.func @twice(%a: f32[q, 4], %w: f32[q]) -> (i1[], f32[q + n, 4], f32[4]) sizes(k, n) inputs ["a", "w"] outputs ["c", "b", "s"] {
    %c = graph.constant {value = literal[true]} : i1[]
    %s = graph.reduce_sum %a {axes = [0], keepdims = false} : f32[4]
    %m = graph.broadcast %s {shape = [n, 4]} : f32[n, 4]
    %b = graph.concat %a, %m {axis = 0} : f32[n + q, 4]
    strata.return %c, %b, %s
  }
  strata.func @same(%x: f32[n, 4]) -> (f32[n, 4]) inputs ["x"] outputs ["y"] {
    strata.return %x
  }
  strata.func @none(%x: f32[n, 4]) -> () inputs ["x"] outputs [] {
    strata.return
  }
  strata.func @main(%x: f32[n, 4], %w: f32[n], %s: i64[2], %c: i1[]) -> (f32[n, 4], f32[p, 4], f32[t, 4]) inputs ["x", "w", "s", "c"] outputs ["y", "b", "l"] {
    strata.size h, w = %s
    strata.assume h <= 4*w
    strata.if %c then @none else @none (%x) :
    %y = strata.if %c then @same else @same (%x) : f32[n, 4]
    %b, %l = strata.loop @twice at k trip h while %c carried(%y) with(%w) defines(p, t) : f32[p, 4], f32[t, 4]
    strata.return %y, %b, %l
  }
  host.func @keep(%x: f32[n, 4]) inputs ["x"] outputs ["y": f32[n, 4]] sizes(n, k) arena(0) {
    %y = host.alloc : f32[n, 4]
    host.copy %x, %y
    host.return %y
  }
  host.func @other(%x: f32[n, 4], %c: i1[], %s: i64[1]) inputs ["x", "c", "s"] outputs ["y": f32[n, 4]] sizes(n) arena(0) {
    strata.size t = %s
    %y = strata.if %c then @keep else @keep (%x) buffers f32[n, 4]
    %z = strata.loop @keep at k trip t carried(%y) with() buffers f32[n, 4]
    host.free %y
    host.return %z
  }
}
