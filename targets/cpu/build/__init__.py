"""From LLVM text to linked machine code, and where it is kept."""
