"""The NumPy semantics of operations, shared by all `evaluate` methods."""
