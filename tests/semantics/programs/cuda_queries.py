"""What torch.cuda answers. The values are those of a machine with one CUDA device."""

import torch
import torch.cuda.comm

from tests.semantics.program import gives


@gives([True, 1, 0])
def there_is_a_device(d):
    return [torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.current_device()]


@gives([True, True])
def initialised_after_use(d):
    torch.ones(1, device=d)
    torch.cuda.init()
    return [torch.cuda.is_initialized(), torch.cuda.is_available()]


@gives(["str", True])
def the_name(d):
    return [
        type(torch.cuda.get_device_name()).__name__,
        torch.cuda.get_device_name(0) == torch.cuda.get_device_name("cuda:0"),
    ]


@gives([2, True])
def the_capability(d):
    capability = torch.cuda.get_device_capability()
    return [len(capability), capability >= (7, 0)]


@gives([True, True, True, True])
def the_properties(d):
    p = torch.cuda.get_device_properties(0)
    return [p.total_memory > 0, p.multi_processor_count > 0, p.major >= 7, isinstance(p.name, str)]


@gives("refused")
def properties_of_a_device_that_is_not_there(d):
    try:
        torch.cuda.get_device_properties(9)
    except (AssertionError, RuntimeError):
        return "refused"


@gives([True, True, True])
def memory_grows_and_shrinks(d):
    before = torch.cuda.memory_allocated()
    x = torch.empty(1024, 256, device=d)
    during = torch.cuda.memory_allocated()
    held = x.nbytes
    del x
    return [during - before >= held, torch.cuda.memory_allocated() < during, torch.cuda.memory_reserved() >= 0]


@gives([True, True])
def the_peak(d):
    torch.cuda.reset_peak_memory_stats()
    x = torch.ones(1024, 512, device=d)
    held = torch.cuda.memory_allocated()
    return [torch.cuda.max_memory_allocated() >= held >= x.nbytes, torch.cuda.max_memory_reserved() >= 0]


@gives([True, True, True])
def free_and_total(d):
    free, total = torch.cuda.mem_get_info()
    return [0 < free <= total, isinstance(free, int), torch.cuda.get_device_properties(0).total_memory > 0]


@gives([True, True])
def statistics(d):
    stats = torch.cuda.memory_stats()
    return ["allocated_bytes.all.current" in stats, "num_alloc_retries" in stats]


@gives([True, None])
def the_summary(d):
    return [
        "CUDA memory summary" in torch.cuda.memory_summary() or "memory" in torch.cuda.memory_summary(),
        torch.cuda.empty_cache(),
    ]


@gives([None, None, None])
def things_that_return_nothing(d):
    return [torch.cuda.synchronize(), torch.cuda.empty_cache(), torch.cuda.ipc_collect()]


@gives([0, 0])
def device_as_a_context(d):
    with torch.cuda.device(0):
        inside = torch.cuda.current_device()
    torch.cuda.set_device(0)
    return [inside, torch.cuda.current_device()]


@gives([True, 0])
def device_of_a_tensor(d):
    x = torch.ones(1, device=d)
    with torch.cuda.device_of(x):
        return [torch.ones(1, device="cuda").device == x.device, torch.cuda.current_device()]


@gives([True, False])
def bfloat16_is_supported(d):
    return [
        torch.cuda.is_bf16_supported(),
        torch.cuda.can_device_access_peer(0, 0) if torch.cuda.device_count() > 1 else False,
    ]


@gives([True, "str", True])
def versions(d):
    return [torch.version.cuda is not None, type(torch.version.cuda).__name__, torch.version.hip is None]


@gives([True, True])
def flags_of_cudnn(d):
    saved = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    kept = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = saved
    return [kept, isinstance(torch.backends.cudnn.enabled, bool)]


@gives([True, "high"])
def tf32_flags(d):
    saved = torch.get_float32_matmul_precision()
    torch.backends.cuda.matmul.allow_tf32 = True
    kept = torch.backends.cuda.matmul.allow_tf32
    torch.set_float32_matmul_precision("high")
    told = torch.get_float32_matmul_precision()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision(saved)
    return [kept, told]


@gives(["cuda", True, 1])
def torch_accelerator(d):
    kind = torch.accelerator.current_accelerator()
    return [
        "cuda" if kind is not None and kind.type == torch.ones(1, device=d).device.type else str(kind),
        torch.accelerator.is_available(),
        torch.accelerator.device_count(),
    ]


@gives(["sm_", True])
def architectures(d):
    found = torch.cuda.get_arch_list()
    return [found[0][:3] if found else "", isinstance(found, list)]


@gives([None, None])
def ranges_of_nvtx(d):
    torch.cuda.nvtx.range_push("part")
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("other"):
        pass
    return [torch.cuda.nvtx.mark("here"), None]


@gives([True, True])
def the_usual_choice_of_a_device(d):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.ones(1, device=device)
    return [x.device.type == device.type, x.is_cuda or x.device.type != "cpu" or device.type == "cpu"]


@gives(True)
def memory_fractions(d):
    torch.cuda.set_per_process_memory_fraction(0.9)
    return torch.cuda.get_per_process_memory_fraction() > 0.8


@gives([[1.0, 1.0], [1.0, 1.0]])
def broadcasts(d):
    x = torch.ones(2, device=d)
    return [
        part.tolist() for part in (torch.cuda.comm.broadcast(x, [0])[0], torch.cuda.comm.gather([x], 0, destination=0))
    ]


@gives([True, True])
def attention_kernels(d):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        x = torch.nn.functional.scaled_dot_product_attention(*[torch.ones(1, 1, 2, 2, device=d)] * 3)
    return [x.shape == (1, 1, 2, 2), isinstance(torch.backends.cuda.flash_sdp_enabled(), bool)]


@gives("OutOfMemoryError")
def too_much_memory(d):
    try:
        torch.empty(2**46, device=d)
    except torch.cuda.OutOfMemoryError as error:
        return type(error).__name__


@gives([True, True])
def out_of_memory_is_a_runtime_error(d):
    try:
        torch.empty(2**46, device=d)
    except RuntimeError as error:
        return [isinstance(error, torch.OutOfMemoryError), "out of memory" in str(error)]
