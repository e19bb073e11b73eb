"""Distributed code: scripts written for NCCL run on the backends of torch.distributed that this machine has.

    backends     which backend stands for which; NCCL's class and variables
    groups       process groups: rewriting requests, and remembering what was asked for
    collectives  what gloo lacks, built from what it has; staging for devices that gloo cannot read
    batchnorm    the operators under `SyncBatchNorm`
    points       the rows: names that are replaced, and what starts with the first group

Importing this package loads nothing and changes nothing; `session` composes it.
"""
