"""Algebraic rules on graph operations, for `graph-simplify`.

A rule is one function with its algebra as its comment; it takes an operation and a `Rewriter` and
gives the value to use instead of the operation's result, or None. A file ends in its table of
rules by operation class.

Floating-point results stay bit for bit what they were, NaN payloads apart, unless a rule's
docstring says otherwise.
"""
