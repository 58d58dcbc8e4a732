"""The algebra of sizes and indices: symbols, expressions, ranges and facts; no dialects."""
