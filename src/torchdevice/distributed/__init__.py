"""Distributed code: scripts written for NCCL run on the engines of torch.distributed that this machine has.

    backends     which backend stands for which on a host; pure
    vendor       `ProcessGroupNCCL` and its options where torch is built without them
    groups       process groups: rewriting requests, and remembering what was asked for
    collectives  what gloo lacks (dtypes, averages of integers), by what it has
    gaps         what gloo lacks in the functions of torch.distributed
    works        collectives with a step of ours after gloo's
    staging      tensors on a device that gloo cannot read cross as copies on the CPU
    batchnorm    the operators under `SyncBatchNorm`
    wrappers     DistributedDataParallel, SyncBatchNorm, device meshes, errors that name the rank
    environment  variables that mean nothing here
    points       the rows, and what session switches on and off

Importing this package loads nothing and changes nothing; `session` composes it.
"""
