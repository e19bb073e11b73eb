"""Distributed code: scripts written for NCCL run on the backends of torch.distributed that this machine has.

    backends     which backend replaces which; NCCL's class and variables
    groups       process groups: rewrites requests and remembers the requested names
    collectives  collectives that gloo lacks, built from those it has; staging for devices that gloo cannot read
    batchnorm    the operators that `SyncBatchNorm` calls
    points       the rows: names that are replaced, and what starts with the first group

Importing this package loads nothing and changes nothing; `session` composes it.
"""
