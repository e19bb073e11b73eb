import torch


def get_device(device):
    if "cuda" in device and torch.cuda.is_available():
        print(f"Running on {torch.cuda.get_device_name(torch.device(device))}")
        return torch.device(device)
    return torch.device("cpu")


assert torch.ones(2, device=get_device("cuda")).device.type != "cpu"
