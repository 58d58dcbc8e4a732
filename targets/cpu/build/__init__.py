"""From LLVM IR to linked machine code, and the cache for it."""
