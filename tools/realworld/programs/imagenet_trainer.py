"""ImageNet-style trainer: set_device, cudnn.benchmark, pinned loader with workers, non_blocking, a prefetch stream."""

import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.backends.cudnn as cudnn
from torch import nn
from torch.utils.data import DataLoader, Dataset

GPU = 0
EPOCHS = 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Images(Dataset):
    """Coloured squares: the class is the brightest channel."""

    def __init__(self, count, seed):
        rng = np.random.RandomState(seed)
        self.targets = rng.randint(0, 3, count)
        self.images = rng.randint(0, 128, (count, 3, 32, 32)).astype(np.uint8)
        for index, target in enumerate(self.targets):
            self.images[index, target] += 100

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return torch.from_numpy(self.images[index]), int(self.targets[index])


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.downsample(x))


def resnet(classes):
    layers = [BasicBlock(3, 8), BasicBlock(8, 16, 2), BasicBlock(16, 16, 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, classes))


class DataPrefetcher:
    """Copies the next batch on a stream of its own while the current one is computed."""

    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.mean = torch.tensor([255 * value for value in MEAN]).cuda().view(1, 3, 1, 1)
        self.std = torch.tensor([255 * value for value in STD]).cuda().view(1, 3, 1, 1)
        self.preload()

    def preload(self):
        try:
            self.next_input, self.next_target = next(self.loader)
        except StopIteration:
            self.next_input = self.next_target = None
            return
        with torch.cuda.stream(self.stream):
            self.next_input = self.next_input.cuda(non_blocking=True)
            self.next_target = self.next_target.cuda(non_blocking=True)
            self.next_input = self.next_input.float().sub_(self.mean).div_(self.std)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        images, target = self.next_input, self.next_target
        if images is not None:
            images.record_stream(torch.cuda.current_stream())
            target.record_stream(torch.cuda.current_stream())
            self.preload()
        return images, target


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32, device="cuda")
        self.sum, self.count = total.tolist()


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0)) for k in topk]


def main():
    torch.manual_seed(0)
    torch.cuda.set_device(GPU)
    cudnn.benchmark = True
    model = resnet(3).cuda(GPU)
    model = model.to(memory_format=torch.channels_last)
    criterion = nn.CrossEntropyLoss().cuda(GPU)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    options = dict(batch_size=16, num_workers=2, pin_memory=True, persistent_workers=True)
    order = torch.Generator()
    order.manual_seed(0)
    train_loader = DataLoader(Images(96, 0), shuffle=True, generator=order, drop_last=True, **options)
    val_loader = DataLoader(Images(48, 1), shuffle=False, **options)

    best, steps, losses = 0.0, 0, []
    folder = tempfile.mkdtemp()
    for epoch in range(EPOCHS):
        model.train()
        meter, end = AverageMeter(), time.time()
        prefetcher = DataPrefetcher(train_loader)
        images, target = prefetcher.next()
        while images is not None:
            images = images.contiguous(memory_format=torch.channels_last)
            loss = criterion(model(images), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
            meter.update(loss.item(), images.size(0))
            steps += 1
            images, target = prefetcher.next()
        scheduler.step()
        losses.append(meter.avg)
        print(f"epoch {epoch}: loss {meter.avg:.4f} in {time.time() - end:.1f} s")

        model.eval()
        top1, top2 = AverageMeter(), AverageMeter()
        with torch.no_grad():
            prefetcher = DataPrefetcher(val_loader)
            images, target = prefetcher.next()
            while images is not None:
                acc1, acc2 = accuracy(model(images), target, topk=(1, 2))
                top1.update(acc1[0].item(), images.size(0))
                top2.update(acc2[0].item(), images.size(0))
                images, target = prefetcher.next()
        top1.all_reduce()
        best = max(best, top1.avg)
        torch.save(
            {"epoch": epoch + 1, "state_dict": model.state_dict(), "best": best, "optimizer": optimizer.state_dict()},
            os.path.join(folder, "checkpoint.pth.tar"),
        )

    checkpoint = torch.load(os.path.join(folder, "checkpoint.pth.tar"), map_location=f"cuda:{GPU}", weights_only=True)
    model.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    model.eval()
    sample = torch.stack([val_loader.dataset[index][0] for index in range(4)]).cuda(GPU, non_blocking=True).float()
    logits = model(sample / 255).detach().cpu().flatten().tolist()
    devices = sorted({str(parameter.device) for parameter in model.parameters()})
    print("RESULT", json.dumps({"steps": steps, "devices": devices, "values": [*losses, *logits]}))


if __name__ == "__main__":
    main()
