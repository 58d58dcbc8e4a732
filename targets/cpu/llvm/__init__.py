"""LLVM IR: the only room of the CPU target that spells it."""
