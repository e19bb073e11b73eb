"""How to make an object of a class, and how to call what no signature explains: expressions over the names of `bench`."""

from __future__ import annotations

_DIST = "torch.distributions."
_SQUARE = "(T(3) + 0.5)"

# Class → an object of it.
OBJECTS: dict[str, str] = {
    "torch.Tensor": "T(3, 3)",
    "torch.nn.Parameter": "torch.nn.Parameter(T(3, 3))",
    "torch.nn.Buffer": "torch.nn.Buffer(T(3, 3))",
    "torch.nn.Module": "net()",
    "torch.Generator": "torch.Generator(D)",
    "torch.device": "torch.device(D)",
    "torch.dtype": "torch.float32",
    "torch.Size": "torch.Size([2, 3])",
    "torch.finfo": "torch.finfo(torch.float32)",
    "torch.iinfo": "torch.iinfo(torch.int32)",
    "torch.Stream": "torch.Stream(device=D)",
    "torch.Event": "torch.Event(D, enable_timing=True)",
    "torch.UntypedStorage": "T(4).untyped_storage()",
    "torch.TypedStorage": "torch.FloatStorage([1.0, 2.0])",
    "torch.SymInt": "symbol(3)",
    "torch.SymFloat": "symbol(2.5)",
    "torch.layout": "torch.strided",
    "torch.memory_format": "torch.contiguous_format",
    "torch.qscheme": "torch.per_tensor_affine",
    "torch.autograd.function.BackwardCFunction": "doubled().grad_fn",
    "torch.autograd.profiler_util.FormattedTimesMixin": "profiled().key_averages()[0]",
    "torch.utils.benchmark.FuzzedParameter": "torch.utils.benchmark.FuzzedParameter('n', 1, 3, 'uniform')",
    "torch.utils.cpp_extension.BuildExtension": "torch.utils.cpp_extension.BuildExtension(__import__('setuptools').Distribution())",
    "torch.utils.throughput_benchmark.ExecutionStats": (
        "(lambda b: run(b.add_input(T(2, 3)), b.benchmark(1, 1, 1)))(torch.utils.ThroughputBenchmark(net()))"
    ),
    "torch.serialization.StorageType": "torch.serialization.StorageType('FloatStorage')",
    "torch.multiprocessing.spawn.ProcessContext": (
        "(lambda c: run(c.join(), c))(module('torch.multiprocessing.spawn').spawn(print, join=False))"
    ),
    "torch.multiprocessing.spawn.SpawnContext": (
        "(lambda c: run(c.join(), c))(module('torch.multiprocessing.spawn').SpawnContext([], []))"
    ),
    "torch.nn.attention.bias.CausalBias": (
        "torch.nn.attention.bias.CausalBias(torch.nn.attention.bias.CausalVariant.UPPER_LEFT, 3, 3)"
    ),
    "torch.nn.modules.lazy.LazyModuleMixin": "torch.nn.LazyLinear(2, device=D)",
    "torch.export.unflatten.InterpreterModuleDispatcher": (
        "module('torch.export.unflatten').InterpreterModuleDispatcher(set(), [finished()])"
    ),
    "torch.distributed.optim.ZeroRedundancyOptimizer": "zero()",
    "torch.distributed.optim.PostLocalSGDOptimizer": (
        "torch.distributed.optim.PostLocalSGDOptimizer(opt(), "
        "torch.distributed.algorithms.model_averaging.averagers.PeriodicModelAverager(1, process_group=group()))"
    ),
    "torch.distributed.algorithms.model_averaging.hierarchical_model_averager.HierarchicalModelAverager": (
        "torch.distributed.algorithms.model_averaging.hierarchical_model_averager.HierarchicalModelAverager("
        "__import__('collections').OrderedDict([(1, 1)]), process_group=group())"
    ),
    "torch.distributed.checkpoint.staging.DefaultStager": (
        "torch.distributed.checkpoint.staging.DefaultStager("
        "torch.distributed.checkpoint.staging.StagingOptions(False, False, False, False))"
    ),
    "torch.distributed.pipelining.Pipe": "piped()",
    "torch.distributed.pipelining.PipelineStage": "stage()",
    "torch.distributed.pipelining.schedules.PipelineScheduleMulti": (
        "torch.distributed.pipelining.ScheduleLoopedBFS([stage()], 1)"
    ),
    "torch.cuda.CUDAGraph": "torch.cuda.CUDAGraph()",
    "torch.cuda.graph": "torch.cuda.graph(torch.cuda.CUDAGraph())",
    "torch.cuda.MemPool": "torch.cuda.MemPool()",
    "torch.GradScaler": "torch.GradScaler(D)",
    "torch.jit.ScriptFunction": "torch.jit.trace(torch.sin, (T(3),))",
    "torch.jit.ScriptModule": "torch.jit.script(net())",
    "torch.jit.Future": "torch.jit.fork(torch.sin, T(3))",
    "torch.futures.Future": "torch.futures.Future()",
    "torch.fx.GraphModule": "graph()",
    "torch.fx.Graph": "graph().graph",
    "torch.fx.Node": "list(graph().graph.nodes)[1]",
    "torch.fx.Interpreter": "torch.fx.Interpreter(graph())",
    "torch.fx.Transformer": "torch.fx.Transformer(graph())",
    "torch.export.ExportedProgram": "exported()",
    "torch.export.UnflattenedModule": "torch.export.unflatten(exported())",
    "torch.export.ExportGraphSignature": "exported().graph_signature",
    "torch.export.graph_signature.ExportGraphSignature": "exported().graph_signature",
    "torch.utils.data.DataLoader": "torch.utils.data.DataLoader(data(), batch_size=2)",
    "torch.utils.data.Dataset": "data()",
    "torch.utils.data.ConcatDataset": "torch.utils.data.ConcatDataset([data(), data()])",
    "torch.utils.data.ChainDataset": "torch.utils.data.ChainDataset([])",
    "torch.utils.data.Subset": "torch.utils.data.Subset(data(), [0, 2])",
    "torch.utils.data.StackDataset": "torch.utils.data.StackDataset(data(), data())",
    "torch.utils.data.WeightedRandomSampler": "torch.utils.data.WeightedRandomSampler([0.1, 0.9], 2)",
    "torch.utils.data.SubsetRandomSampler": "torch.utils.data.SubsetRandomSampler([0, 1])",
    "torch.utils.data.DistributedSampler": "torch.utils.data.DistributedSampler(data(), 1, 0)",
    "torch.utils.benchmark.Timer": "torch.utils.benchmark.Timer('1 + 1')",
    "torch.utils.benchmark.Measurement": "torch.utils.benchmark.Timer('1 + 1').timeit(2)",
    "torch.utils.benchmark.Compare": "torch.utils.benchmark.Compare([torch.utils.benchmark.Timer('1 + 1').timeit(2)])",
    "torch.utils.benchmark.TaskSpec": "torch.utils.benchmark.Timer('1 + 1').timeit(2).task_spec",
    "torch.utils.flop_counter.FlopCounterMode": "entered(torch.utils.flop_counter.FlopCounterMode(display=False))",
    "torch.autograd.profiler.profile": "profiled()",
    "torch.autograd.profiler.EventList": "profiled().function_events",
    "torch.autograd.profiler_util.EventList": "profiled().function_events",
    "torch.autograd.profiler.FunctionEvent": "profiled().function_events[0]",
    "torch.autograd.profiler_util.FunctionEventAvg": "profiled().key_averages()[0]",
    "torch.profiler.profile": "entered(torch.profiler.profile(), lambda: None)",
    "torch.autograd.graph.Node": "T(3, grad=True).sin().grad_fn",
    "torch.distributed.Store": "torch.distributed.HashStore()",
    "torch.distributed.PrefixStore": "torch.distributed.PrefixStore('p', torch.distributed.HashStore())",
    "torch.distributed.FileStore": "torch.distributed.FileStore(file(), 1)",
    "torch.distributed.TCPStore": "torch.distributed.TCPStore('localhost', 0, 1, True, wait_for_workers=False)",
    "torch.distributed.ProcessGroup": "group()",
    "torch.distributed.ProcessGroupGloo": "group()._get_backend(torch.device('cpu'))",
    "torch.distributed.Work": "torch.distributed.all_reduce(T(3), async_op=True, group=group())",
    "torch.distributed.DeviceMesh": "mesh()",
    "torch.distributed.tensor.DTensor": "torch.distributed.tensor.distribute_tensor(T(4, 3), mesh(), [torch.distributed.tensor.Shard(0)])",
    "torch.nn.parallel.DistributedDataParallel": "run(group(), torch.nn.parallel.DistributedDataParallel(net()))",
    "torch.nn.DataParallel": "torch.nn.DataParallel(net())",
    "torch.nn.utils.rnn.PackedSequence": "torch.nn.utils.rnn.pack_sequence([T(3, 2), T(2, 2)])",
    "torch.nn.ModuleList": "torch.nn.ModuleList([net()])",
    "torch.nn.ModuleDict": "torch.nn.ModuleDict({'weight': net()})",
    "torch.nn.ParameterList": "torch.nn.ParameterList([T(3)])",
    "torch.nn.ParameterDict": "torch.nn.ParameterDict({'weight': T(3)})",
    "torch.nn.Sequential": "torch.nn.Sequential(net(), net())",
    "torch.nn.RNNBase": "torch.nn.RNNBase('RNN_TANH', 3, 3, device=D)",
    "torch.nn.RNN": "torch.nn.RNN(3, 3, device=D)",
    "torch.nn.LSTM": "torch.nn.LSTM(3, 3, device=D)",
    "torch.nn.GRU": "torch.nn.GRU(3, 3, device=D)",
    "torch.nn.RNNCellBase": "torch.nn.RNNCellBase(3, 3, True, 1, device=D)",
    "torch.nn.Transformer": "torch.nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, device=D)",
    "torch.nn.TransformerEncoder": "torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, device=D), 1)",
    "torch.nn.TransformerDecoder": "torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(4, 2, 8, 0.0, device=D), 1)",
    "torch.nn.TransformerEncoderLayer": "torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, device=D)",
    "torch.nn.TransformerDecoderLayer": "torch.nn.TransformerDecoderLayer(4, 2, 8, 0.0, device=D)",
    "torch.nn.AdaptiveLogSoftmaxWithLoss": "torch.nn.AdaptiveLogSoftmaxWithLoss(3, 6, [2, 4], device=D)",
    "torch.nn.attention.flex_attention.BlockMask": "torch.nn.attention.flex_attention.create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 128, 128, device=D)",
    "torch.masked.MaskedTensor": "torch.masked.masked_tensor(T(3, 3), B(3, 3))",
    "torch.serialization.LoadEndianness": "torch.serialization.LoadEndianness.LITTLE",
    "torch.library.Library": "torch.library.Library('cat_bench', 'FRAGMENT')",
    "torch.optim.Optimizer": "opt()",
    "torch.optim.swa_utils.AveragedModel": "torch.optim.swa_utils.AveragedModel(net(), device=D)",
    "torch.optim.lr_scheduler.SequentialLR": "(lambda o: torch.optim.lr_scheduler.SequentialLR(o, [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.StepLR(o, 1)], [1]))(opt())",
    "torch.optim.lr_scheduler.ChainedScheduler": "(lambda o: torch.optim.lr_scheduler.ChainedScheduler([torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.StepLR(o, 1)]))(opt())",
    "torch.optim.lr_scheduler.LRScheduler": "torch.optim.lr_scheduler.StepLR(opt(), 1)",
    "torch.optim.lr_scheduler.OneCycleLR": "torch.optim.lr_scheduler.OneCycleLR(opt(momentum=0.9), 0.1, total_steps=5)",
    "torch.optim.lr_scheduler.CyclicLR": "torch.optim.lr_scheduler.CyclicLR(opt(momentum=0.9), 0.01, 0.1)",
    "torch.optim.LBFGS": "opt(torch.optim.LBFGS)",
    "torch.optim.Muon": "torch.optim.Muon([torch.nn.Parameter(T(3, 3))], lr=0.1)",
    "torch.optim.SparseAdam": "torch.optim.SparseAdam([torch.nn.Parameter(T(3, 3))])",
    # distributions
    **{
        f"{_DIST}{name}": f"{_DIST}{name}({arguments})"
        for name, arguments in {
            "Bernoulli": "T(3)",
            "Beta": f"{_SQUARE}, {_SQUARE}",
            "Binomial": "4, T(3)",
            "Categorical": "T(3)",
            "Cauchy": f"T(3), {_SQUARE}",
            "Chi2": _SQUARE,
            "ContinuousBernoulli": "T(3)",
            "Dirichlet": _SQUARE,
            "Exponential": _SQUARE,
            "FisherSnedecor": f"{_SQUARE} + 2, {_SQUARE} + 4",
            "Gamma": f"{_SQUARE}, {_SQUARE}",
            "GeneralizedPareto": f"T(3), {_SQUARE}, 0.1 * T(3)",
            "Geometric": "T(3)",
            "Gumbel": f"T(3), {_SQUARE}",
            "HalfCauchy": _SQUARE,
            "HalfNormal": _SQUARE,
            "InverseGamma": f"{_SQUARE} + 2, {_SQUARE}",
            "Kumaraswamy": f"{_SQUARE}, {_SQUARE}",
            "LKJCholesky": "3, T(1) + 1",
            "Laplace": f"T(3), {_SQUARE}",
            "LogNormal": f"T(3), {_SQUARE}",
            "LogisticNormal": f"T(3), {_SQUARE}",
            "LowRankMultivariateNormal": f"T(3), T(3, 1), {_SQUARE}",
            "MixtureSameFamily": f"{_DIST}Categorical(T(3)), {_DIST}Normal(T(3), {_SQUARE})",
            "Multinomial": "4, T(3)",
            "MultivariateNormal": "T(3), P()",
            "NegativeBinomial": "4, T(3)",
            "Normal": f"T(3), {_SQUARE}",
            "OneHotCategorical": "T(3)",
            "OneHotCategoricalStraightThrough": "T(3)",
            "Pareto": f"{_SQUARE}, {_SQUARE} + 3",
            "Poisson": _SQUARE,
            "RelaxedBernoulli": "T(1) + 1, T(3)",
            "RelaxedOneHotCategorical": "T(1) + 1, T(3)",
            "StudentT": f"{_SQUARE} + 3",
            "TransformedDistribution": f"{_DIST}Normal(T(3), {_SQUARE}), [{_DIST}ExpTransform()]",
            "Uniform": "T(3), T(3) + 1",
            "VonMises": f"T(3), {_SQUARE}",
            "Weibull": f"{_SQUARE}, {_SQUARE}",
            "Wishart": "torch.tensor(4.0, device=D), P()",
            "Independent": f"{_DIST}Normal(T(3), {_SQUARE}), 1",
            "AffineTransform": "T(1), T(1) + 1",
            "CatTransform": f"[{_DIST}ExpTransform(), {_DIST}ExpTransform()], 0, [1, 2]",
            "ComposeTransform": f"[{_DIST}ExpTransform(), {_DIST}SigmoidTransform()]",
            "CumulativeDistributionTransform": f"{_DIST}Normal(T(3), {_SQUARE})",
            "IndependentTransform": f"{_DIST}ExpTransform(), 1",
            "PowerTransform": "T(1) + 1",
            "ReshapeTransform": "(3, 3), (9,)",
            "StackTransform": f"[{_DIST}ExpTransform(), {_DIST}ExpTransform(), {_DIST}ExpTransform()], 0",
        }.items()
    },
    # Of a base class, an object of a subclass: what the base leaves open is defined there.
    f"{_DIST}Distribution": f"{_DIST}Normal(T(3), {_SQUARE})",
    f"{_DIST}ExponentialFamily": f"{_DIST}Gamma({_SQUARE}, {_SQUARE})",
    f"{_DIST}Transform": f"{_DIST}ExpTransform()",
    f"{_DIST}relaxed_bernoulli.LogitRelaxedBernoulli": f"{_DIST}relaxed_bernoulli.LogitRelaxedBernoulli(T(1) + 1, T(3))",
    f"{_DIST}relaxed_categorical.ExpRelaxedCategorical": (
        f"{_DIST}relaxed_categorical.ExpRelaxedCategorical(T(1) + 1, T(3))"
    ),
    "torch.distributed.ReduceOp": "torch.distributed.ReduceOp(torch.distributed.ReduceOp.SUM)",
    "torch.distributed.fsdp.FSDPModule": "torch.distributed.fsdp.fully_shard(net(), mesh=mesh())",
    "torch.distributed.fsdp.FullyShardedDataParallel": (
        "run(group(), torch.distributed.fsdp.FullyShardedDataParallel(net(), device_id=torch.device(D)))"
    ),
    "torch.distributed.fsdp.DataParallelMeshDims": "torch.distributed.fsdp.DataParallelMeshDims(shard='all')",
    "torch.distributed.P2POp": "run(group(), torch.distributed.P2POp(torch.distributed.isend, T(3), 0))",
    "torch.distributed.checkpoint.FileSystemWriter": "torch.distributed.checkpoint.FileSystemWriter(folder)",
    "torch.distributed.checkpoint.FileSystemReader": "torch.distributed.checkpoint.FileSystemReader(folder)",
    "torch.nn.FractionalMaxPool2d": "torch.nn.FractionalMaxPool2d(2, output_size=2)",
    "torch.nn.FractionalMaxPool3d": "torch.nn.FractionalMaxPool3d(2, output_size=2)",
    "torch.nn.Upsample": "torch.nn.Upsample(scale_factor=2)",
    "torch.nn.Fold": "torch.nn.Fold((3, 3), (2, 2))",
    "torch.backends.cuda.SDPAParams": (
        "torch.backends.cuda.SDPAParams(T(1, 2, 4, 8), T(1, 2, 4, 8), T(1, 2, 4, 8), None, 0.0, False, False)"
    ),
    "torch.autograd.profiler.MemRecordsAcc": "torch.autograd.profiler.MemRecordsAcc([])",
    "torch.autograd.profiler_util.MemRecordsAcc": "torch.autograd.profiler_util.MemRecordsAcc([])",
    "torch.autograd.profiler_legacy.profile": "entered(torch.autograd.profiler_legacy.profile())",
    "torch.nn.utils.spectral_norm.SpectralNorm": "__import__('sys').modules['torch.nn.utils.spectral_norm'].SpectralNorm()",
    "torch.nn.utils.weight_norm.WeightNorm": "__import__('sys').modules['torch.nn.utils.weight_norm'].WeightNorm('weight', 0)",
    "torch.utils.hooks.RemovableHandle": "torch.utils.hooks.RemovableHandle(__import__('collections').OrderedDict())",
    "torch.nn.utils.prune.PruningContainer": "torch.nn.utils.prune.PruningContainer(pruning())",
    **{
        f"{_DIST}constraints.{name}": f"{_DIST}constraints.{name}({given})"
        for name, given in {
            "cat": f"[{_DIST}constraints.real, {_DIST}constraints.positive]",
            "stack": f"[{_DIST}constraints.real, {_DIST}constraints.positive]",
            "independent": f"{_DIST}constraints.real, 1",
            "MixtureSameFamilyConstraint": f"{_DIST}constraints.real",
        }.items()
    },
}

# Objects of the same class that are unlike the first: layouts, dtypes, gradients.
OTHERS: dict[str, tuple[str, ...]] = {
    "torch.Tensor": (
        "sparse()",
        "P().to_sparse_csr()",
        "P().to_sparse_csc()",
        "torch.quantize_per_tensor(torch.ones(3, device='cpu'), 0.1, 2, torch.quint8)",
        "torch.quantize_per_channel(torch.ones(2, 2, device='cpu'), torch.ones(2), torch.zeros(2), 0, torch.quint8)",
        "T(3, 3, grad=True)",
        "T(3, dtype=torch.complex64)",
        "T(1)",
        "torch.nested.nested_tensor([T(2), T(3)])",
    ),
}
