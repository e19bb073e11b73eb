"""What torch.cuda, torch.xpu, torch.mps and torch.accelerator ask, and who answers.

    rows         every public name of the namespaces, what becomes of it, and what it answers
    real         the devices that exist, in one shape
    devices, memory, streams, graphs, random, libraries, parallel, mps
                 the functions and classes of torch._C under torch's Python code, by topic
    accelerator  torch.accelerator on a host without one
    shadow       torch's own Python functions of a namespace, run on other functions of torch._C
    scoped       the rows as replacements that can be undone
    audience     who is answered and who gets the truth; counts
    outside      names outside the namespaces that CUDA code uses with them
    failures     the target's errors in the classes and words that CUDA code looks for
    precision    operators that autocast("cuda") computes in float32
    packages     libraries that would load CUDA-only code, and get the truth
    lightning    Lightning's own checks and names of accelerators

Importing this package loads nothing and changes nothing; `session` composes it.
"""
