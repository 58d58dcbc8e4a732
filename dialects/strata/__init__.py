"""What all levels share: types, the function over tensors, sizes, assumptions, control, weights."""
