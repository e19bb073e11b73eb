import torch

weights = torch.randint(0, 255, (32, 32), dtype=torch.uint8, device="mps")
packed = torch.ops.aten._convert_weight_to_int4pack(weights, 2)
assert packed.device.type == "mps"
assert packed.numel() * packed.element_size() == 32 * 32
print("ok")
