"""Programs of several ranks: what collective operations compute, and who takes part."""
