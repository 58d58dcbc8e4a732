"""What `block-prove-bounds` adds to functions: assumptions and checks about sizes."""
