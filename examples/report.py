"""A program that reads its own report and profile.

torchdevice run --profile examples/report.py
"""

import torch

import torchdevice

with torchdevice.redirect(policy="portable"):
    model = torch.nn.Linear(64, 64).cuda()
    for _ in range(100):
        model(torch.randn(32, 64, device="cuda")).sum().backward()
    report = torchdevice.report()

print(report.summary())
for row in report.rows:
    print(f"{row.api}: {row.asked} → {row.given}, {row.calls} calls, first at line {row.first.line}")
