"""From Triton source to cubins."""
