"""Random instances of the patterns that rewriting rules look for: functions in the text of the IR.

`tests/passes/test_rules.py` has a rule's function name for each of these, or a test file whose
functions have its pattern; a rule without either fails there.
"""
