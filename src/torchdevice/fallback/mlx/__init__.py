"""The MLX executor: rules from aten operators to MLX expressions, and when they are faster. Imports MLX lazily."""
