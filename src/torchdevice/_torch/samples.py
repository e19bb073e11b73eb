"""torch's own database of operators with sample inputs, and its functions for nested arguments. Each has its reason.

The database is not a public part of torch, and it needs packages that torch itself does not install (`expecttest`,
NumPy). Expiry: a public database, such as a package of its own.
"""

from __future__ import annotations

from typing import Any

from torch.utils import _pytree as pytree

# Functions of arguments and results, which can be nested. Expiry: `torch.utils.pytree`, which torch 2.9 lacks.
leaves_of = pytree.tree_leaves
map_leaves = pytree.tree_map


def operator_database() -> list[Any]:
    """One entry per public function, some with variants. Raises ImportError if a package is missing."""
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)
