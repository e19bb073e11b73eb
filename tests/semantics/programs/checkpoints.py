"""state_dict, torch.save and torch.load with every form of map_location."""

import io
import os
import tempfile

import torch
from torch import nn

from tests.semantics.program import gives


def _loaded(value, **arguments):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **arguments)


def a_tensor_round_trips(d):
    x = torch.arange(4.0, device=d)
    y = _loaded(x)
    return [y.tolist(), y.device == x.device]


def map_location_as_a_string(d):
    y = _loaded(torch.arange(3, device=d), map_location=d)
    return [y.tolist(), y.device.type == torch.device(d).type]


def map_location_as_a_device(d):
    y = _loaded(torch.arange(3), map_location=torch.device(d))
    return [y.tolist(), y.device.type == torch.device(d).type]


def map_location_as_a_dict(d):
    y = _loaded(torch.arange(3.0, device=d), map_location={"cuda:0": "cpu", "cpu": "cpu"})
    return y.tolist()


def map_location_as_a_function(d):
    y = _loaded(torch.arange(3.0, device=d), map_location=lambda storage, location: storage)
    return y.tolist()


def map_location_as_a_function_that_moves(d):
    def move(storage, location):
        return storage.cuda(0) if d == "cuda" else storage

    y = _loaded(torch.arange(3.0), map_location=move)
    return [y.tolist(), y.device.type == torch.device(d).type]


@gives(["cpu", [0.0, 1.0]])
def map_location_to_the_host(d):
    y = _loaded(torch.arange(2.0, device=d), map_location="cpu")
    return [y.device.type, y.tolist()]


@gives("cuda:0")
def the_location_that_a_function_is_told(d):
    told = []

    def remember(storage, location):
        told.append(location)
        return storage

    _loaded(torch.arange(2.0, device=d), map_location=remember)
    return told[0]


def weights_only(d):
    state = {"model": nn.Linear(2, 1).to(d).state_dict(), "epoch": 3, "lr": 0.1, "names": ["a", "b"]}
    back = _loaded(state, weights_only=True, map_location=d)
    return [back["epoch"], back["lr"], back["names"], torch.equal(back["model"]["weight"], state["model"]["weight"])]


def a_whole_module_round_trips(d):
    m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).to(d)
    x = torch.ones(2, 3, device=d)
    return torch.equal(m(x), _loaded(m, weights_only=False)(x))


def shared_storage_stays_shared(d):
    x = torch.zeros(4, device=d)
    back = _loaded({"all": x, "part": x[1:3]})
    back["all"][1] = 7
    return back["part"].tolist()


def a_file_and_mmap(d):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.pt")
        torch.save({"x": torch.arange(5.0, device=d)}, path)
        return [
            torch.load(path)["x"].tolist(),
            torch.load(path, map_location="cpu", mmap=True)["x"].tolist(),
        ]


def the_old_format(d):
    file = io.BytesIO()
    torch.save(torch.arange(3.0, device=d), file, _use_new_zipfile_serialization=False)
    file.seek(0)
    return torch.load(file, map_location=d, weights_only=False).tolist()


def every_dtype_is_saved(d):
    kinds = [
        torch.uint8,
        torch.int16,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.bool,
        torch.complex64,
    ]
    back = _loaded([torch.ones(2, dtype=kind, device=d) for kind in kinds])
    return [[str(x.dtype), x.tolist()] for x in back]


def a_parameter_stays_a_parameter(d):
    back = _loaded(nn.Parameter(torch.ones(2, device=d)), weights_only=False)
    return [type(back).__name__, back.requires_grad, back.tolist()]


def strides_are_kept(d):
    back = _loaded(torch.arange(6.0, device=d).view(2, 3).t())
    return [back.stride(), back.tolist()]


def load_state_dict_copies(d):
    a, b = nn.Linear(2, 2).to(d), nn.Linear(2, 2).to(d)
    b.load_state_dict(a.state_dict())
    with torch.no_grad():
        a.weight.add_(1)
    return (a.weight - b.weight).tolist()


def state_dict_is_a_reference(d):
    m = nn.Linear(2, 2).to(d)
    state = m.state_dict()
    with torch.no_grad():
        m.weight.fill_(3)
    return state["weight"].tolist()


def a_state_dict_of_the_host_loads_on_the_device(d):
    state = {"weight": torch.full((1, 2), 2.0), "bias": torch.zeros(1)}
    m = nn.Linear(2, 1).to(d)
    result = m.load_state_dict(state)
    return [str(result), m(torch.ones(1, 2, device=d)).tolist(), m.weight.device.type == torch.device(d).type]


def missing_and_unexpected_keys(d):
    m = nn.Linear(2, 1).to(d)
    result = m.load_state_dict({"weight": torch.ones(1, 2, device=d), "other": torch.ones(1, device=d)}, strict=False)
    return [result.missing_keys, result.unexpected_keys]


def a_wrong_shape_is_refused(d):
    m = nn.Linear(2, 1).to(d)
    try:
        m.load_state_dict({"weight": torch.ones(3, 3), "bias": torch.ones(1)})
    except RuntimeError as error:
        return "size mismatch for weight" in str(error)


def load_with_assign(d):
    m = nn.Linear(2, 1).to(d)
    weight = torch.full((1, 2), 4.0, device=d)
    m.load_state_dict({"weight": weight, "bias": torch.zeros(1, device=d)}, assign=True)
    return [m.weight.tolist(), m.weight.data_ptr() == weight.data_ptr()]


def built_on_meta_and_filled(d):
    with torch.device("meta"):
        m = nn.Linear(2, 1)
    m = m.to_empty(device=d)
    m.load_state_dict({"weight": torch.ones(1, 2), "bias": torch.zeros(1)})
    return m(torch.ones(1, 2, device=d)).tolist()


def training_resumes_where_it_stopped(d):
    def step(m, o):
        o.zero_grad()
        m(torch.ones(2, 3, device=d)).pow(2).sum().backward()
        o.step()

    m = nn.Linear(3, 1).to(d)
    o = torch.optim.Adam(m.parameters(), lr=0.1)
    step(m, o)
    saved = _loaded({"m": m.state_dict(), "o": o.state_dict()}, map_location=d)
    step(m, o)
    n = nn.Linear(3, 1).to(d)
    p = torch.optim.Adam(n.parameters(), lr=0.1)
    n.load_state_dict(saved["m"])
    p.load_state_dict(saved["o"])
    step(n, p)
    return torch.allclose(m.weight, n.weight)


def optimizer_state_lies_on_the_device(d):
    m = nn.Linear(2, 1).to(d)
    o = torch.optim.Adam(m.parameters())
    m(torch.ones(1, 2, device=d)).sum().backward()
    o.step()
    p = torch.optim.Adam(m.parameters())
    p.load_state_dict(_loaded(o.state_dict(), map_location="cpu"))
    return [state["exp_avg"].device == m.weight.device for state in p.state.values()]


def random_states_are_saved(d):
    state = _loaded({"cpu": torch.get_rng_state(), "numpy": 3})
    first = torch.rand(2)
    torch.set_rng_state(state["cpu"])
    return torch.equal(first, torch.rand(2))


@gives(True)
def the_states_of_all_devices_are_saved(d):
    state = _loaded(torch.cuda.get_rng_state_all())
    first = torch.rand(2, device=d)
    torch.cuda.set_rng_state_all(state)
    return torch.equal(first, torch.rand(2, device=d))


@gives(True)
def random_states_come_back_mapped_to_the_host(d):
    state = _loaded({"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state()}, map_location="cpu")
    first = torch.rand(2), torch.rand(2, device=d)
    torch.set_rng_state(state["cpu"])
    torch.cuda.set_rng_state(state["cuda"])
    return torch.equal(first[0], torch.rand(2)) and torch.equal(first[1], torch.rand(2, device=d))


def buffers_that_are_not_kept(d):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.ones(1))
            self.register_buffer("dropped", torch.ones(1), persistent=False)

    return list(Counting().to(d).state_dict())


def prefixes_and_metadata(d):
    m = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)).to(d)
    state = m.state_dict(prefix="net.")
    return [list(state), state._metadata["net.0"]["version"]]


def extra_state(d):
    class Extra(nn.Module):
        def get_extra_state(self):
            return {"x": torch.ones(1, device=d)}

        def set_extra_state(self, state):
            self.x = state["x"]

    m = Extra().to(d)
    m.load_state_dict(m.state_dict())
    return m.x.tolist()


def safe_globals_and_classes(d):
    class Own:
        pass

    try:
        _loaded({"x": torch.ones(1, device=d), "o": torch.nn.Linear(1, 1).to(d)}, weights_only=True)
    except Exception as error:
        return type(error).__name__


def a_storage_is_saved(d):
    x = torch.arange(3.0, device=d)
    back = _loaded(x.untyped_storage(), weights_only=False)
    return [back.nbytes(), type(back).__name__]


def a_file_that_is_none(d):
    try:
        torch.load(io.BytesIO(b"nothing of the kind"), map_location=d)
    except Exception as error:
        return type(error).__name__


def loading_needs_no_map_for_a_device_that_is_there(d):
    m = nn.Linear(1, 1).to(d)
    return _loaded(m.state_dict())["weight"].device == m.weight.device
