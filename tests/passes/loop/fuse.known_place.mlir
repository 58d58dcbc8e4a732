// PASSES: loop-fuse
// A copy moves into the scatter that it reads. Its one place along an axis of one element is known, so the nest is no
// scatter any longer, and does not say that it writes every element.
builtin.module {
  // CHECK: outs(i64[1, m][0, i1]) into(%{{.*}}) {
  strata.func @main(%x: i64[1, m]) -> (i64[1, m]) inputs ["x"] outputs ["y"] {
    %place = loop.nest (i1: m) ins(%x[0, i1]) outs(i64[1, m][0, i1]) {
    ^bb0(%v: i64):
      %zero = arith.xori %v, %v : i64
      loop.yield %zero
    }
    %empty = loop.empty : i64[m, 1]
    %s = loop.nest (i1: m) ins(%place[0, i1]) outs(i64[m, 1][i1, in0]) into(%empty) total {
    ^bb0(%p: i64):
      %first = loop.index i1 : index
      %at = arith.index_cast %first : index to i64
      loop.yield %at
    }
    %y = loop.nest (i1: m) ins(%s[i1, 0]) outs(i64[1, m][0, i1]) {
    ^bb0(%q: i64):
      loop.yield %q
    }
    strata.return %y
  }
}
