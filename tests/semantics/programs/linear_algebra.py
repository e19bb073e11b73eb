"""torch.linalg and products."""

import torch


def _a(d):
    return torch.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]], device=d)


def _b(d):
    return torch.tensor([[1.0, 2.0], [0.0, 1.0], [3.0, -1.0]], device=d)


def _rebuilt_svd(d):
    u, s, vh = torch.linalg.svd(_b(d), full_matrices=False)
    return [s.tolist(), torch.allclose(u @ s.diag() @ vh, _b(d), atol=1e-5)]


def _rebuilt_qr(d):
    q, r = torch.linalg.qr(_b(d))
    return [torch.allclose(q @ r, _b(d), atol=1e-5), torch.allclose(q.T @ q, torch.eye(2, device=d), atol=1e-5)]


def _rebuilt_lu(d):
    p, low, up = torch.linalg.lu(_a(d))
    return torch.allclose(p @ low @ up, _a(d), atol=1e-5)


def _rebuilt_eigh(d):
    w, v = torch.linalg.eigh(_a(d))
    return [w.tolist(), torch.allclose(v @ w.diag() @ v.T, _a(d), atol=1e-5)]


def _gradient(function):
    def program(d):
        a = _a(d).requires_grad_()
        function(a).backward()
        return a.grad.tolist()

    return program


ROWS = {
    "matmul": lambda d: (_a(d) @ _b(d)).tolist(),
    "matmul_batched": lambda d: torch.matmul(_a(d).expand(2, 3, 3), _b(d)).tolist(),
    "mv_dot_outer": lambda d: [
        torch.mv(_a(d), _a(d)[0]).tolist(),
        torch.dot(_a(d)[0], _a(d)[1]).item(),
        torch.outer(_b(d)[0], _b(d)[1]).tolist(),
    ],
    "addmm": lambda d: torch.addmm(torch.ones(2, device=d), _a(d), _b(d), beta=0.5, alpha=2).tolist(),
    "bmm_baddbmm": lambda d: [
        torch.bmm(_a(d)[None], _b(d)[None]).tolist(),
        torch.baddbmm(torch.ones(1, 3, 2, device=d), _a(d)[None], _b(d)[None]).tolist(),
    ],
    "einsum": lambda d: [
        torch.einsum("ij,jk->ik", _a(d), _b(d)).tolist(),
        torch.einsum("ii", _a(d)).item(),
        torch.einsum("ij->ji", _b(d)).tolist(),
    ],
    "tensordot_kron": lambda d: [
        torch.tensordot(_a(d), _a(d), dims=2).item(),
        torch.kron(_b(d)[:1], _b(d)[1:2]).tolist(),
    ],
    "inverse": lambda d: torch.linalg.inv(_a(d)).tolist(),
    "solve": lambda d: torch.linalg.solve(_a(d), _b(d)).tolist(),
    "solve_triangular": lambda d: torch.linalg.solve_triangular(_a(d).triu(), _b(d), upper=True).tolist(),
    "cholesky": lambda d: torch.linalg.cholesky(_a(d)).tolist(),
    "cholesky_solve": lambda d: torch.cholesky_solve(_b(d), torch.linalg.cholesky(_a(d))).tolist(),
    "det": lambda d: [
        torch.linalg.det(_a(d)).item(),
        torch.logdet(_a(d)).item(),
        torch.linalg.slogdet(_a(d))[0].item(),
    ],
    "svd": _rebuilt_svd,
    "svdvals": lambda d: torch.linalg.svdvals(_b(d)).tolist(),
    "qr": _rebuilt_qr,
    "lu": _rebuilt_lu,
    "eigh": _rebuilt_eigh,
    "eigvals": lambda d: sorted(torch.linalg.eigvals(_a(d)).real.tolist()),
    "pinv": lambda d: torch.linalg.pinv(_b(d)).tolist(),
    "lstsq": lambda d: torch.linalg.lstsq(_b(d), _a(d)[:, :1]).solution.tolist(),
    "norms": lambda d: [
        torch.linalg.norm(_a(d)).item(),
        torch.linalg.matrix_norm(_a(d), 1).item(),
        _a(d).norm(p=1).item(),
    ],
    "vector_norms": lambda d: [torch.linalg.vector_norm(_a(d), p, dim=1).tolist() for p in (0, 1, 2, float("inf"))],
    "matrix_power_exp": lambda d: [
        torch.linalg.matrix_power(_a(d), 3).tolist(),
        torch.linalg.matrix_exp(_a(d) / 4).tolist(),
    ],
    "rank_cond": lambda d: [torch.linalg.matrix_rank(_b(d)).item(), torch.linalg.cond(_a(d)).item()],
    "trace_diag_tri": lambda d: [
        _a(d).trace().item(),
        _a(d).diag().tolist(),
        _a(d).tril(-1).tolist(),
        _a(d).triu(1).tolist(),
    ],
    "cross": lambda d: torch.linalg.cross(_a(d)[0], _a(d)[1]).tolist(),
    "multi_dot_chain": lambda d: torch.linalg.multi_dot([_a(d), _a(d), _b(d)]).tolist(),
    "householder": lambda d: [list(part.shape) for part in torch.geqrf(_b(d))],
    "gradient_of_inverse": _gradient(lambda a: torch.linalg.inv(a).sum()),
    "gradient_of_cholesky": _gradient(lambda a: torch.linalg.cholesky(a).sum()),
    "gradient_of_logdet": _gradient(lambda a: torch.logdet(a)),
    "gradient_of_svdvals": _gradient(lambda a: torch.linalg.svdvals(a).sum()),
    "gradient_of_eigvalsh": _gradient(lambda a: torch.linalg.eigvalsh(a)[0]),
}


def a_singular_matrix_is_refused(d):
    try:
        torch.linalg.inv(torch.zeros(2, 2, device=d))
    except RuntimeError as error:
        return [type(error).__name__, isinstance(error, torch.linalg.LinAlgError)]


def not_positive_definite(d):
    _, info = torch.linalg.cholesky_ex(-_a(d))
    try:
        torch.linalg.cholesky(-_a(d))
    except torch.linalg.LinAlgError:
        return [info.item() > 0, "refused"]


def out_arguments(d):
    out = torch.empty(3, 2, device=d)
    same = torch.matmul(_a(d), _b(d), out=out)
    return [out.tolist(), same is out]


def float64_is_computed(d):
    return torch.linalg.inv(_a(d).double()).tolist()


def half_precision_products(d):
    return (_a(d).half() @ _b(d).half()).float().tolist()


def integer_products(d):
    a = torch.arange(4, device=d).view(2, 2)
    return [(a @ a).tolist(), str((a @ a).dtype)]


def wrong_shapes_are_refused(d):
    try:
        _b(d) @ _b(d)
    except RuntimeError as error:
        return "shapes cannot be multiplied" in str(error)
