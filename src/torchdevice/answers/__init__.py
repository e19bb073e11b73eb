"""The masquerade: replacements for torch.cuda, torch.xpu, torch.mps and torch.accelerator.

    device       the interface that the replacements call and that devices implement
    real         the devices that exist: CPU, MPS, and those with a module like torch.cuda
    virtual      the devices that the C++ library makes
    counted      memory statistics of devices that have none, and the limit of a CPU
    devices, memory, streams, graphs, random, comm, libraries, mps
                 replacements for functions and classes of torch._C, by topic
    table        all of them in one table per namespace, and the names that are not replaced
    scoped       makes a table visible to user code until `deactivate()`; shadow runs torch's own Python code on it
    installed    installs a table in torch until the process ends
    asked        the names that the installed torch uses, read from its sources, and those without a replacement
    rows         every public name of the namespaces, its kind of replacement, and its result
    audience     which callers get the replacement and which the original; counts calls
    accelerator  torch.accelerator on a host without one
    outside      names outside the namespaces that CUDA code uses with them
    failures     converts the target's errors to the classes and messages that CUDA code expects
    relief       frees memory when the target is full
    precision    operators that autocast("cuda") casts and autocast("cpu") does not
    attention    attention over jagged tensors, one call per sequence
    products     matrix products with a separate dtype for the result
    packages     libraries that would load CUDA-only code and therefore get the original functions
    lightning    Lightning's own checks and names of accelerators

Importing this package loads nothing and changes nothing. `session` activates it.
"""
