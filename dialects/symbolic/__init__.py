"""The algebra of sizes and indices: symbols, expressions, ranges and facts. It knows no dialect."""
