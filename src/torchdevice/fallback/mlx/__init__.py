"""The MLX executor: rules from aten operators to MLX expressions, and when they pay. Loads MLX only when asked."""
