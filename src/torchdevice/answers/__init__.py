"""What torch.cuda, torch.xpu, torch.mps and torch.accelerator ask, and who answers.

    device       the protocol between the questions and who answers
    real         the devices that exist: CPU, MPS, and those with a module shaped like torch.cuda
    virtual      the devices that the C++ library makes
    devices, memory, streams, graphs, random, comm, libraries, mps
                 the functions and classes of torch._C under torch's Python code, by topic
    table        all of them in one table per namespace, and what is left alone
    scoped       a table exposed to user code until `deactivate()`; shadow runs torch's own Python code on it
    installed    a table put into torch for the life of the process
    asked        what the installed torch asks, read from its sources, and what has no answer
    rows         every public name of the namespaces, what becomes of it, and what it answers
    audience     who is answered and who gets the truth; counts
    accelerator  torch.accelerator on a host without one
    outside      names outside the namespaces that CUDA code uses with them
    failures     the target's errors in the classes and words that CUDA code looks for
    precision    operators that autocast("cuda") casts and the CPU leaves alone
    products     products of matrices with a dtype of their own for the result
    packages     libraries that would load CUDA-only code, and get the truth
    lightning    Lightning's own checks and names of accelerators

Importing this package loads nothing and changes nothing; `session` composes it.
"""
