"""DataLoader: workers, pinned memory, samplers, collating."""

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)

from tests.semantics.program import gives


class _Squares(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.tensor([float(i * i)]), i


class _Arrays(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return {"x": np.full(2, i, dtype=np.float32), "name": f"n{i}", "y": i, "w": float(i)}


class _Counting(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(start, 8, step))


class _Draws(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.rand(1)


def _batches(d, loader):
    return [[part.to(d).tolist() for part in batch] for batch in loader]


def batches_in_order(d):
    return _batches(d, DataLoader(_Squares(), batch_size=4))


def the_last_is_dropped(d):
    return _batches(d, DataLoader(_Squares(), batch_size=4, drop_last=True))


def with_workers(d):
    return _batches(d, DataLoader(_Squares(), batch_size=3, num_workers=1))


def with_persistent_workers(d):
    loader = DataLoader(_Squares(), batch_size=3, num_workers=1, persistent_workers=True, prefetch_factor=2)
    return [_batches(d, loader), _batches(d, loader)]


def with_pinned_memory(d):
    return _batches(d, DataLoader(_Squares(), batch_size=3, pin_memory=True))


def with_workers_and_pinned_memory(d):
    return _batches(d, DataLoader(_Squares(), batch_size=3, num_workers=1, pin_memory=True))


@gives([True, True])
def pinned_batches_say_so(d):
    x, _ = next(iter(DataLoader(_Squares(), batch_size=3, pin_memory=True)))
    return [x.is_pinned(), torch.ones(2).pin_memory().is_pinned()]


class _Pair:
    """A batch of the program's own, as the documentation of DataLoader shows it."""

    def __init__(self, samples):
        self.x = torch.stack([torch.as_tensor(x) for x, _ in samples])
        self.told = False

    def pin_memory(self):
        self.x, self.told = self.x.pin_memory(), True
        return self


@gives([True, True, [True, True]])
def batches_of_a_class_are_pinned_by_it(d):
    batch = next(iter(DataLoader(_Squares(), batch_size=3, pin_memory=True, collate_fn=_Pair)))
    named = next(iter(DataLoader([{"a": torch.ones(1), "b": "c"}] * 2, batch_size=2, pin_memory=True)))
    return [batch.told, batch.x.is_pinned(), [named["a"].is_pinned(), isinstance(named["b"], list)]]


@gives(["cpu", "cpu"])
def batches_lie_on_the_host(d):
    x, y = next(iter(DataLoader(_Squares(), batch_size=3)))
    return [x.device.type, y.device.type]


def shuffling_repeats_with_a_generator(d):
    order = lambda: [
        y.tolist() for _, y in DataLoader(_Squares(), shuffle=True, generator=torch.Generator().manual_seed(4))
    ]
    first = order()
    return [first == order(), sorted(i for batch in first for i in batch)]


def shuffling_repeats_with_a_seed(d):
    def order():
        torch.manual_seed(3)
        return [y.tolist() for _, y in DataLoader(_Squares(), shuffle=True)]

    return order() == order()


def workers_draw_repeatable_numbers(d):
    def draws():
        torch.manual_seed(5)
        return [x.flatten().tolist() for x in DataLoader(_Draws(), batch_size=2, num_workers=1)]

    return draws() == draws()


def dictionaries_and_arrays(d):
    batch = next(iter(DataLoader(_Arrays(), batch_size=2)))
    return [batch["x"].to(d).tolist(), batch["name"], batch["y"].tolist(), batch["w"].tolist(), str(batch["x"].dtype)]


def an_iterable_dataset(d):
    return [b.to(d).tolist() for b in DataLoader(_Counting(), batch_size=3)]


def an_iterable_dataset_with_workers(d):
    return sorted(i for batch in DataLoader(_Counting(), batch_size=2, num_workers=2) for i in batch.to(d).tolist())


def tensors_on_the_device(d):
    data = TensorDataset(torch.arange(4.0, device=d), torch.arange(4, device=d))
    return [[a.tolist(), b.tolist(), a.device.type == torch.device(d).type] for a, b in DataLoader(data, batch_size=2)]


def an_own_collate(d):
    def collate(items):
        return torch.stack([x for x, _ in items]).to(d), len(items)

    return [[x.tolist(), n] for x, n in DataLoader(_Squares(), batch_size=4, collate_fn=collate)]


def default_collate_of_everything(d):
    out = default_collate([(1, 2.0, torch.ones(2, device=d)), (3, 4.0, torch.zeros(2, device=d))])
    return [out[0].tolist(), out[1].tolist(), out[2].tolist(), out[2].device.type == torch.device(d).type]


def samplers(d):
    data = range(5)
    weighted = WeightedRandomSampler([0.0, 0.0, 1.0], 4)
    return [
        list(SequentialSampler(data)),
        sorted(RandomSampler(data)),
        list(BatchSampler(SequentialSampler(data), 2, drop_last=False)),
        list(weighted),
        len(list(RandomSampler(data, replacement=True, num_samples=9))),
    ]


def a_weighted_sampler_with_device_weights(d):
    return list(WeightedRandomSampler(torch.tensor([0.0, 1.0], device=d).cpu(), 3))


def subsets_and_sums(d):
    data = TensorDataset(torch.arange(5))
    both = ConcatDataset([Subset(data, [4, 0]), data])
    return [int(both[0][0]), len(both), [len(part) for part in random_split(data, [0.4, 0.6])]]


def a_worker_s_error_arrives(d):
    class Bad(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            raise KeyError("missing")

    try:
        list(DataLoader(Bad(), num_workers=1))
    except KeyError as error:
        return "worker process 0" in str(error)


def worker_init_function(d):
    seen = []
    list(DataLoader(_Squares(), worker_init_fn=seen.append))
    return [seen, torch.initial_seed() is not None]


@gives(["cpu", True])
def workers_do_without_the_device(d):
    class Where(Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, i):
            return str(torch.ones(1).device), get_worker_info() is not None

    where, worker = next(iter(DataLoader(Where(), num_workers=1)))
    return [where[0], bool(worker[0])]


def a_distributed_sampler(d):
    sampler = torch.utils.data.distributed.DistributedSampler(range(7), num_replicas=2, rank=1, shuffle=False)
    return list(sampler)


def one_epoch_of_training(d):
    m = torch.nn.Linear(1, 1).to(d)
    torch.nn.init.zeros_(m.weight)
    torch.nn.init.zeros_(m.bias)
    o = torch.optim.SGD(m.parameters(), lr=0.001)
    total = 0.0
    for x, y in DataLoader(_Squares(), batch_size=2, pin_memory=True):
        x, y = x.to(d, non_blocking=True), y.to(d, non_blocking=True)
        o.zero_grad()
        loss = torch.nn.functional.mse_loss(m(x).squeeze(1), y.float())
        loss.backward()
        o.step()
        total += loss.item() * x.size(0)
    return total
