"""The masquerade: `torch.cuda` (and `torch.mps`, `torch.xpu`) on a machine that has another device.

    surface    the rows: every public name, what becomes of it, and what it answers
    shadow     torch's own Python functions of the namespace, run on another `torch._C`
    target     what the machine's device can tell: one class per kind of device
    device, memory, streams, graphs, random, libraries   the C functions under torch's Python code, answered by a target
    masquerade rows → replacements, who gets the truth instead, and the records of what was answered
    neighbours names outside the namespace that CUDA code uses with it: flags, versions, autocast's state, profilers

Importing this package loads nothing and changes nothing; `session` composes it.
"""
