"""Algebraic rules on graph operations, for `graph-simplify`.

A rule is a function whose comment is its algebra. It takes an operation and a `Rewriter`,
and returns the value to use instead of the operation's result, or None if it does not apply. Each
file ends with its table of rules by operation class.

Floating-point results stay the same bit for bit, except for NaN payloads, unless a rule's docstring
says otherwise.
"""
