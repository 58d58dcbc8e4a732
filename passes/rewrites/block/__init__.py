"""The assumptions and checks about sizes that `block-prove-bounds` adds to functions."""
