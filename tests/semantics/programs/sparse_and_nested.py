"""Sparse and nested tensors."""

import torch


def _coo(d):
    return torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0]), (2, 3)).to(d)


def coo_to_dense(d):
    return _coo(d).to_dense().tolist()


def coo_parts(d):
    s = _coo(d).coalesce()
    return [s.indices().tolist(), s.values().tolist(), s._nnz(), s.is_sparse, str(s.layout), s.is_coalesced()]


def coo_made_on_the_device(d):
    s = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), device=d)
    return [s.to_dense().tolist(), s.device.type == torch.device(d).type]


def coo_coalesces(d):
    s = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2), device=d)
    return [s.is_coalesced(), s.coalesce().values().tolist()]


def coo_arithmetic(d):
    s = _coo(d)
    return [
        (s + s).to_dense().tolist(),
        (s * 2).to_dense().tolist(),
        s.t().to_dense().tolist(),
        torch.sparse.sum(s).item(),
    ]


def coo_matmul(d):
    dense = torch.arange(6.0, device=d).view(3, 2)
    return [torch.sparse.mm(_coo(d), dense).tolist(), (_coo(d) @ dense).tolist()]


def coo_matmul_gradient(d):
    dense = torch.ones(3, 2, device=d, requires_grad=True)
    torch.sparse.mm(_coo(d), dense).sum().backward()
    return dense.grad.tolist()


def dense_to_coo(d):
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0]], device=d)
    return [x.to_sparse().indices().tolist(), x.to_sparse().values().tolist()]


def csr_parts(d):
    s = torch.tensor([[0.0, 1.0], [2.0, 3.0]], device=d).to_sparse_csr()
    return [s.crow_indices().tolist(), s.col_indices().tolist(), s.values().tolist(), str(s.layout)]


def csr_matmul(d):
    s = torch.sparse_csr_tensor([0, 1, 3], [1, 0, 1], [1.0, 2.0, 3.0], (2, 2), device=d)
    return [(s @ torch.tensor([1.0, 2.0], device=d)).tolist(), s.to_dense().tolist()]


def sparse_embedding_gradient(d):
    e = torch.nn.Embedding(4, 2, sparse=True).to(d)
    e(torch.tensor([1, 1, 3], device=d)).sum().backward()
    return [e.weight.grad.is_sparse, e.weight.grad.to_dense().tolist()]


def sparse_returns_to_the_host(d):
    s = _coo(d).cpu()
    return [s.to_dense().tolist(), s.is_sparse]


def sparse_softmax(d):
    return torch.sparse.softmax(_coo(d), 1).to_dense().tolist()


def sparse_mask(d):
    return torch.ones(2, 3, device=d).sparse_mask(_coo(d).coalesce()).to_dense().tolist()


def _nested(d):
    parts = [torch.arange(4.0, device=d).view(2, 2), torch.ones(3, 2, device=d)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


def nested_parts(d):
    n = _nested(d)
    return [[part.tolist() for part in n.unbind()], n.is_nested, n.offsets().tolist()]


def nested_padded(d):
    return torch.nested.to_padded_tensor(_nested(d), -1.0).tolist()


def nested_arithmetic(d):
    return [part.tolist() for part in (_nested(d) * 2 + 1).sin().unbind()]


def nested_linear(d):
    m = torch.nn.Linear(2, 1).to(d)
    torch.nn.init.ones_(m.weight)
    torch.nn.init.zeros_(m.bias)
    return [part.tolist() for part in m(_nested(d)).unbind()]


def nested_gradient(d):
    x = torch.ones(2, 2, device=d, requires_grad=True)
    n = torch.nested.as_nested_tensor([x, x * 2], layout=torch.jagged)
    n.values().sum().backward()
    return x.grad.tolist()


def nested_strided(d):
    n = torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)], device=d)
    return [[part.tolist() for part in n.unbind()], n.size(0), n.to_padded_tensor(0.0).tolist()]
