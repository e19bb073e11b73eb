"""The masquerade: `torch.cuda` (and `torch.mps`, `torch.xpu`) on a machine that has another device.

    surface     the rows: every public name, what becomes of it, and what it answers
    shadow      torch's own Python functions of a namespace, run on another `torch._C`
    target      what the machine's device can tell, one class per kind of device; accounting counts memory for it
    device, memory, streams, graphs, random, libraries, vitals, metal
                the C functions and objects under torch's Python code, answered by a target
    failures    the target's errors in the classes and words that CUDA code looks for
    register    who is answered and who gets the truth; the count of answers
    masquerade  rows become replacements
    agnostic    torch.accelerator on a CPU, answered as torch.cuda is
    packages    libraries that would wake CUDA-only code, and get the truth
    neighbours  names outside the namespaces that CUDA code uses with them; parallel is what some stand for
    lightning   the same for Lightning's own checks and names of accelerators
    precision   operators that autocast("cuda") computes in float32; norms are those with weights
    document    docs/masquerade.md, printed from the rows

Importing this package loads nothing and changes nothing; `session` composes it.
"""
