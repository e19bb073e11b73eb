"""How to call what belongs to one accelerator: name → expression over the names of `bench`."""

from __future__ import annotations

_TIMED = "(lambda a, b: run(a.record(), b.record(), b.synchronize(), a.elapsed_time(b) >= 0))"
_ATTENTION = "torch.backends.cuda.SDPAParams(T(1, 2, 4, 8), T(1, 2, 4, 8), T(1, 2, 4, 8), None, 0.0, False, False)"

ACCELERATORS: dict[str, str] = {
    **{
        f"torch.{space}.Event.elapsed_time": (
            f"{_TIMED}(torch.{space}.Event(enable_timing=True), torch.{space}.Event(enable_timing=True))"
        )
        for space in ("cuda", "xpu", "mps")
    },
    **{
        f"torch.backends.cuda.cuFFTPlanCache.{name}": f"torch.backends.cuda.cufft_plan_cache[0].{name}{call}"
        for name, call in (("clear", "()"), ("size", ""), ("max_size", ""))
    },
    "torch.cuda.GreenContext": "torch.cuda.GreenContext.create(num_sms=8, device_id=0)",
    "torch.mps.profiler.metal_capture": "entered(torch.mps.profiler.metal_capture('name'))",
    "torch.serialization.validate_cuda_device": "torch.serialization.validate_cuda_device('cuda:0')",
    **{
        f"torch.{space}.{kind}.capture_end": f"captured(torch.{space}.{kind}, torch.{space}.graph)[1].shape"
        for space, kind in (("cuda", "CUDAGraph"), ("xpu", "XPUGraph"))
    },
    **{
        f"torch.{space}.{kind}.replay": f"(lambda g: run(g[0].replay(), g[1]))(captured(torch.{space}.{kind}, torch.{space}.graph))"
        for space, kind in (("cuda", "CUDAGraph"), ("xpu", "XPUGraph"))
    },
    **{
        f"torch.{space}.make_graphed_callables": (
            f"torch.{space}.make_graphed_callables(net(), (T(2, 3, grad=True),))(T(2, 3))"
        )
        for space in ("cuda", "xpu")
    },
    "torch.cuda.comm.broadcast": "torch.cuda.comm.broadcast(T(3, 3), devices=[0])",
    "torch.cuda.comm.scatter": "torch.cuda.comm.scatter(T(4, 3), devices=[0])",
    "torch.cuda.nccl.all_gather": "run((x := T(3) * 0), torch.cuda.nccl.all_gather([T(3)], [x]), x)",
    "torch.cuda.nccl.reduce_scatter": "run((x := T(3) * 0), torch.cuda.nccl.reduce_scatter([T(3)], [x]), x)",
    **{
        f"torch.backends.cuda.can_use_{kind}_attention": f"torch.backends.cuda.can_use_{kind}_attention({_ATTENTION})"
        for kind in ("cudnn", "efficient", "flash")
    },
    "torch.backends.nnpack.set_flags": "torch.backends.nnpack.set_flags(True)",
}
