"""copy.copy, deepcopy, pickle."""

import copy
import pickle

import torch
from torch import nn


def deepcopy_of_a_tensor(d):
    x = torch.ones(2, device=d)
    y = copy.deepcopy(x)
    x.add_(1)
    return [y.tolist(), y.device == x.device]


def deepcopy_keeps_aliases(d):
    x = torch.ones(4, device=d)
    a, b = copy.deepcopy([x, x[:2]])
    a[0] = 9
    return b.tolist()


def deepcopy_of_a_module(d):
    m = nn.Linear(2, 1).to(d)
    n = copy.deepcopy(m)
    with torch.no_grad():
        m.weight.fill_(9)
    return [n.weight.tolist() == m.weight.tolist(), n.weight.device == m.weight.device, n.weight.requires_grad]


def deepcopy_of_a_gradient(d):
    x = torch.ones(2, device=d, requires_grad=True)
    (x * 3).sum().backward()
    return copy.deepcopy(x).grad.tolist()


def deepcopy_of_a_result_is_refused(d):
    try:
        copy.deepcopy(torch.ones(2, device=d, requires_grad=True) * 2)
    except RuntimeError as error:
        return "graph leaves" in str(error)


def deepcopy_of_a_state_dict(d):
    m = nn.Linear(1, 1).to(d)
    nn.init.ones_(m.weight)
    best = copy.deepcopy(m.state_dict())
    nn.init.zeros_(m.weight)
    m.load_state_dict(best)
    return m.weight.tolist()


def copy_of_a_tensor_shares(d):
    x = torch.ones(2, device=d)
    y = copy.copy(x)
    x.add_(1)
    return y.tolist()


def copy_of_a_module_shares(d):
    m = nn.Linear(1, 1).to(d)
    return copy.copy(m).weight is m.weight


def pickle_of_a_tensor(d):
    x = torch.arange(3, device=d)
    y = pickle.loads(pickle.dumps(x))
    return [y.tolist(), y.device == x.device, str(y.dtype)]


def pickle_of_a_parameter(d):
    p = pickle.loads(pickle.dumps(nn.Parameter(torch.ones(2, device=d))))
    return [type(p).__name__, p.tolist(), p.requires_grad]


def pickle_of_a_module(d):
    m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(d).eval()
    n = pickle.loads(pickle.dumps(m))
    x = torch.ones(3, 2, device=d)
    return torch.equal(m(x), n(x))


def pickle_of_an_optimizer(d):
    m = nn.Linear(2, 1).to(d)
    o = torch.optim.Adam(m.parameters(), lr=0.5)
    m(torch.ones(1, 2, device=d)).sum().backward()
    o.step()
    return [pickle.loads(pickle.dumps(o)).param_groups[0]["lr"], len(o.state)]


def pickle_of_a_device_and_a_dtype(d):
    device = torch.ones(1, device=d).device
    return [pickle.loads(pickle.dumps(device)) == device, str(pickle.loads(pickle.dumps(torch.float16)))]


def pickle_of_a_size(d):
    return list(pickle.loads(pickle.dumps(torch.ones(2, 3, device=d).shape)))


def copy_of_a_device(d):
    device = torch.device(d)
    return [copy.deepcopy(device) == device, copy.copy(device) == device]


def clone_of_a_generator(d):
    g = torch.Generator(device=d).manual_seed(3)
    h = g.clone_state()
    return torch.equal(torch.rand(2, device=d, generator=g), torch.rand(2, device=d, generator=h))


def deepcopy_of_an_optimizer(d):
    m = nn.Linear(2, 1).to(d)
    o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    m(torch.ones(1, 2, device=d)).sum().backward()
    o.step()
    p = copy.deepcopy(o)
    return [s["momentum_buffer"].device == m.weight.device for s in p.state.values()]
