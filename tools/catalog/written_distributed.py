"""How to call torch.distributed beyond collectives: point to point, hooks, checkpoints, shards, pipelines, DTensors."""

from __future__ import annotations

_DIST = "torch.distributed"
_HOOKS = f"{_DIST}.algorithms.ddp_comm_hooks"
_AVERAGING = f"{_DIST}.algorithms.model_averaging"
_DCP = f"{_DIST}.checkpoint"
_FSDP = f"{_DIST}.fsdp.FullyShardedDataParallel"
_PIPE = f"{_DIST}.pipelining"
_SHARDED = f"{_DIST}.tensor.distribute_tensor(T(4, 3), mesh(), [{_DIST}.tensor.Shard(0)])"
_EXTENSIONS = f"{_DIST}.tensor.parallel.fsdp.DTensorExtensions(torch.cpu)"
_LOSS = "torch.nn.functional.mse_loss"
_STAGER = f"{_DCP}.staging.DefaultStager({_DCP}.staging.StagingOptions(False, False, False, False))"
_SENDS = "(lambda: torch.distributed.send(T(3), 0))"
_RECEIVES = "(lambda: torch.distributed.recv(T(3), 0))"
_WORLD = "torch.distributed.group.WORLD"
_BACKEND = f"{_WORLD}._get_backend(torch.device('cpu'))"
_POWER = f"{_HOOKS}.powerSGD_hook"
_LOCAL = f"{_HOOKS}.post_localSGD_hook"
_LOCAL_STATE = f"{_LOCAL}.PostLocalSGDState(group(), None, 1)"

DISTRIBUTED: dict[str, str] = {
    "torch.distributed.GroupName": "torch.distributed.GroupName('name')",
    # Two ranks: this process and a fork of it.
    "torch.distributed.send": f"pair(lambda: torch.distributed.send(T(3), 1), {_RECEIVES})",
    "torch.distributed.recv": f"pair(lambda: run((x := T(3) * 0), torch.distributed.recv(x, 1), x), {_SENDS})",
    "torch.distributed.isend": f"pair(lambda: torch.distributed.isend(T(3), 1).wait(), {_RECEIVES})",
    "torch.distributed.irecv": f"pair(lambda: run((x := T(3) * 0), torch.distributed.irecv(x, 1).wait(), x), {_SENDS})",
    "torch.distributed.batch_isend_irecv": (
        "pair(lambda: run((x := T(3) * 0), [w.wait() for w in torch.distributed.batch_isend_irecv("
        f"[torch.distributed.P2POp(torch.distributed.irecv, x, 1)])], x), {_SENDS})"
    ),
    "torch.distributed.send_object_list": (
        "pair(lambda: torch.distributed.send_object_list([1], 1, device=torch.device(D)), "
        "lambda: torch.distributed.recv_object_list([None], 0, device=torch.device(D)))"
    ),
    "torch.distributed.recv_object_list": (
        "pair(lambda: run((x := [None]), torch.distributed.recv_object_list(x, 1, device=torch.device(D)), x), "
        "lambda: torch.distributed.send_object_list([1], 0, device=torch.device(D)))"
    ),
    "torch.distributed.ProcessGroup.send": f"pair(lambda: {_WORLD}.send([T(3)], 1, 0).wait(), {_RECEIVES})",
    "torch.distributed.ProcessGroup.recv": (
        f"pair(lambda: run((x := T(3) * 0), {_WORLD}.recv([x], 1, 0).wait(), x), {_SENDS})"
    ),
    "torch.distributed.ProcessGroup.recv_anysource": (
        f"pair(lambda: run((x := T(3) * 0), {_WORLD}.recv_anysource([x], 0).wait(), x), {_SENDS})"
    ),
    "torch.distributed.ProcessGroupGloo.send": f"pair(lambda: {_BACKEND}.send([H(3)], 1, 0).wait(), {_RECEIVES})",
    "torch.distributed.ProcessGroupGloo.recv": (
        f"pair(lambda: run((x := H(3) * 0), {_BACKEND}.recv([x], 1, 0).wait(), x), {_SENDS})"
    ),
    "torch.distributed.ProcessGroupGloo.recv_anysource": (
        f"pair(lambda: run((x := H(3) * 0), {_BACKEND}.recv_anysource([x], 0).wait(), x), {_SENDS})"
    ),
    "torch.distributed.Work.source_rank": (
        f"pair(lambda: (lambda w: run(w.wait(), w.source_rank()))({_WORLD}.recv_anysource([T(3)], 0)), {_SENDS})"
    ),
    # Groups and backends.
    **{
        f"torch.distributed.ProcessGroup.{name}": f"run((x := {made}), group().{name}({given}).wait(), x)"
        for name, made, given in (
            ("allgather_coalesced", "[[T(3) * 0]]", "x, [T(3)]"),
            ("allgather_into_tensor_coalesced", "[T(3) * 0]", "x, [T(3)]"),
            ("all_gather_single_coalesced", "[T(3) * 0]", "x, [T(3)]"),
            ("all_gather_single", "T(3) * 0", "x, T(3)"),
            ("alltoall", "[T(3) * 0]", "x, [T(3)]"),
            ("allreduce_coalesced", "[T(3)]", "x"),
            ("reduce_scatter_single", "T(3) * 0", "x, T(3)"),
            ("reduce_scatter_single_coalesced", "[T(3) * 0]", "x, [T(3)]"),
            ("reduce_scatter_tensor_coalesced", "[T(3) * 0]", "x, [T(3)]"),
        )
    },
    "torch.distributed.ProcessGroup.split_group": "group().split_group([0])",
    "torch.distributed.ProcessGroup.merge_remote_group": (
        "group().merge_remote_group(torch.distributed.HashStore(), 1, __import__('datetime').timedelta(seconds=5)).size()"
    ),
    "torch.distributed.ProcessGroup.unbox": "torch.distributed.ProcessGroup.unbox(group().boxed()).size()",
    "torch.distributed.ProcessGroupGloo.allgather_coalesced": (
        "run((x := [[H(3) * 0]]), gloo().allgather_coalesced(x, [H(3)]).wait(), x)"
    ),
    "torch.distributed.ProcessGroupGloo.alltoall": "gloo().alltoall([H(3)], [H(3)])",
    "torch.distributed.ProcessGroupGloo.create_default_device": (
        "torch.distributed.ProcessGroupGloo.create_default_device()"
    ),
    "torch.distributed.ProcessGroupGloo.create_device": "torch.distributed.ProcessGroupGloo.create_device(hostname='localhost')",
    "torch.distributed.ProcessGroupGloo.eager_connect_single_device": (
        "gloo().eager_connect_single_device(torch.device('cpu'))"
    ),
    "torch.distributed.ProcessGroupGloo.shrink": "gloo().shrink([])",
    "torch.distributed.ProcessGroupGloo.supports_tensor_alloc": "gloo().supports_tensor_alloc(torch.device('cpu'))",
    "torch.distributed.ProcessGroupGloo.allocate_tensor": (
        "gloo().allocate_tensor(3, dtype=torch.float32, device=torch.device('cpu'))"
    ),
    **{
        f"torch.distributed.ReduceOp.{name}": f"str(torch.distributed.ReduceOp.{name})"
        for name in ("AVG", "BAND", "BOR", "BXOR", "MAX", "MIN", "PREMUL_SUM", "PRODUCT", "SUM")
    },
    "torch.distributed.ReduceOp.factor": "torch._C._distributed_c10d._make_nccl_premul_sum(2.0).factor",
    "torch.distributed.Work": (
        "isinstance(torch.distributed.all_reduce(T(3), async_op=True, group=group()), torch.distributed.Work)"
    ),
    "torch.distributed.Work.unbox": (
        "torch.distributed.Work.unbox(torch.distributed.all_reduce(T(3), async_op=True, group=group()).boxed()).wait()"
    ),
    "torch.distributed.get_node_local_rank": "torch.distributed.get_node_local_rank(0)",
    "torch.distributed.new_subgroups_by_enumeration": (
        "run(group(), torch.distributed.new_subgroups_by_enumeration([[0]])[0].size())"
    ),
    "torch.distributed.rendezvous": (
        "next(torch.distributed.rendezvous('file://' + file(), rank=0, world_size=1))[1:]"
    ),
    "torch.distributed.shrink_group": "run(group(), torch.distributed.shrink_group([1]))",
    "torch.distributed.set_debug_level": "torch.distributed.set_debug_level(torch.distributed.DebugLevel.OFF)",
    # Hooks of DistributedDataParallel, and joins.
    **{
        f"{_HOOKS}.{name}": f"hooked({_HOOKS}.{name}, group())"
        for name in (
            "default_hooks.allreduce_hook",
            "default_hooks.bf16_compress_hook",
            "default_hooks.fp16_compress_hook",
            "debugging_hooks.noop_hook",
            "quantization_hooks.quantization_perchannel_hook",
            "quantization_hooks.quantization_pertensor_hook",
        )
    },
    "torch.nn.parallel.DistributedDataParallel.register_comm_hook": (
        f"hooked({_HOOKS}.default_hooks.allreduce_hook, group())"
    ),
    f"{_HOOKS}.DDPCommHookType": f"{_HOOKS}.DDPCommHookType.ALLREDUCE.name",
    f"{_HOOKS}.register_ddp_comm_hook": (
        f"(lambda m: run({_HOOKS}.register_ddp_comm_hook({_HOOKS}.DDPCommHookType.ALLREDUCE, m, group()), "
        "m(T(2, 3)).sum().backward(), m.module.weight.grad))(run(group(), torch.nn.parallel.DistributedDataParallel(net())))"
    ),
    **{
        f"{_HOOKS}.ddp_zero_hook.{name}": (
            f"(lambda m: run((z := {_DIST}.optim.ZeroRedundancyOptimizer(m.parameters(), torch.optim.SGD, lr=0.1, "
            f"overlap_with_ddp=True)), m.register_comm_hook(None, {_HOOKS}.ddp_zero_hook.{name}("
            f"{_HOOKS}.default_hooks.allreduce_hook, m, z)), [m(T(2, 3)).sum().backward() for _ in range(3)], m))"
            "(run(group(), torch.nn.parallel.DistributedDataParallel(net(), gradient_as_bucket_view=True)))"
        )
        for name in ("hook_with_zero_step", "hook_with_zero_step_interleaved")
    },
    f"{_LOCAL}.post_localSGD_hook": f"hooked({_LOCAL}.post_localSGD_hook, {_LOCAL_STATE})",
    f"{_LOCAL}.PostLocalSGDState.maybe_increase_iter": (
        f"(lambda s: run(hooked(lambda _, bucket: run(s.maybe_increase_iter(bucket), "
        f"{_HOOKS}.default_hooks.allreduce_hook(group(), bucket))), s.iter))({_LOCAL_STATE})"
    ),
    f"{_POWER}.PowerSGDState.maybe_increase_iter": (
        f"(lambda s: run(hooked(lambda _, bucket: run(s.maybe_increase_iter(bucket), "
        f"{_HOOKS}.default_hooks.allreduce_hook(group(), bucket))), s.iter))({_POWER}.PowerSGDState(group()))"
    ),
    f"{_POWER}.powerSGD_hook": f"hooked({_POWER}.powerSGD_hook, {_POWER}.PowerSGDState(group()))",
    f"{_POWER}.batched_powerSGD_hook": f"hooked({_POWER}.batched_powerSGD_hook, {_POWER}.PowerSGDState(group()))",
    f"{_DIST}.algorithms.Join": (
        f"(lambda m: entered({_DIST}.algorithms.Join([m]), lambda: backward(m(T(2, 3)))))"
        "(run(group(), torch.nn.parallel.DistributedDataParallel(net())))"
    ),
    f"{_DIST}.algorithms.Join.notify_join_context": f"{_DIST}.algorithms.Join.notify_join_context(zero())",
    # Averaging.
    f"{_AVERAGING}.averagers.PeriodicModelAverager.average_parameters": (
        f"(lambda p: run({_AVERAGING}.averagers.PeriodicModelAverager(1, process_group=group()).average_parameters(p), p))"
        "(learned())"
    ),
    f"{_AVERAGING}.hierarchical_model_averager.HierarchicalModelAverager.average_parameters": (
        f"(lambda p: run({_AVERAGING}.hierarchical_model_averager.HierarchicalModelAverager("
        "__import__('collections').OrderedDict([(1, 1)]), process_group=group()).average_parameters(p), p))"
        "(learned())"
    ),
    f"{_AVERAGING}.utils.average_parameters_or_parameter_groups": (
        f"(lambda p: run({_AVERAGING}.utils.average_parameters_or_parameter_groups(iter(p), group()), p))(learned())"
    ),
    # Optimizers.
    f"{_DIST}.optim.ZeroRedundancyOptimizer.load_state_dict": (
        "(lambda z: run(z.consolidate_state_dict(), z.load_state_dict(z.state_dict())))(zero())"
    ),
    f"{_DIST}.optim.ZeroRedundancyOptimizer.state_dict": "(lambda z: run(z.consolidate_state_dict(), z.state_dict()))(zero())",
    f"{_DIST}.optim.as_functional_optim": f"{_DIST}.optim.as_functional_optim(torch.optim.SGD)",
    f"{_DIST}.optim.DistributedOptimizer": "remote()",
    f"{_DIST}.optim.DistributedOptimizer.step": (
        f"(lambda o: entered({_DIST}.autograd.context(), lambda: o.step({_DIST}.autograd._current_context()._context_id())))(remote())"
    ),
    # Checkpoints.
    f"{_DCP}.DefaultLoadPlanner.create_local_plan": "len(planned()[1].items)",
    f"{_DCP}.DefaultLoadPlanner.load_bytes": (
        "(lambda p: run(p[0].load_bytes(p[1].items[0], module('io').BytesIO(open(file(2), 'rb').read())), p[0].state_dict['a']))"
        "(planned(a=1))"
    ),
    f"{_DCP}.DefaultLoadPlanner.lookup_tensor": "(lambda p: p[0].lookup_tensor(p[1].items[0].dest_index))(planned())",
    f"{_DCP}.DefaultLoadPlanner.resolve_tensor": "(lambda p: p[0].resolve_tensor(p[1].items[0]))(planned())",
    f"{_DCP}.DefaultLoadPlanner.transform_tensor": "(lambda p: p[0].transform_tensor(p[1].items[0], T(3)))(planned())",
    f"{_DCP}.DefaultSavePlanner.create_local_plan": "len(planning()[1].items)",
    f"{_DCP}.DefaultSavePlanner.create_global_plan": "(lambda p: len(p[0].create_global_plan([p[1]])))(planning())",
    f"{_DCP}.DefaultSavePlanner.lookup_object": "(lambda p: p[0].lookup_object(p[1].items[0].index))(planning())",
    f"{_DCP}.DefaultSavePlanner.resolve_data": "(lambda p: p[0].resolve_data(p[1].items[0]))(planning())",
    f"{_DCP}.DefaultSavePlanner.transform_object": "(lambda p: p[0].transform_object(p[1].items[0], T(3)))(planning())",
    f"{_DCP}.FileSystemReader.read_metadata": f"list({_DCP}.FileSystemReader(kept()).read_metadata().state_dict_metadata)",
    f"{_DCP}.FileSystemReader.set_up_storage_reader": (
        f"(lambda r: r.set_up_storage_reader(r.read_metadata(), True))({_DCP}.FileSystemReader(kept()))"
    ),
    f"{_DCP}.FileSystemReader.read_data": (
        "(lambda p: run(p[2].read_data(p[1], p[0]).wait(), p[0].state_dict['a']))(planned())"
    ),
    f"{_DCP}.FileSystemWriter.prepare_global_plan": "(lambda p: len(p[2].prepare_global_plan([p[1]])))(planning())",
    f"{_DCP}.FileSystemWriter.write_data": (
        "(lambda p: len(p[2].write_data(p[2].prepare_global_plan([p[0].create_global_plan([p[1]])[0][0]])[0], p[0]).wait()))"
        "(planning())"
    ),
    f"{_DCP}.FileSystemWriter.finish": (
        "(lambda p: (lambda g: p[2].finish(g[1], [p[2].write_data("
        "p[2].prepare_global_plan(g[0])[0], p[0]).wait()]))(p[0].create_global_plan([p[1]])))(planning())"
    ),
    f"{_DCP}.HuggingFaceStorageWriter.prepare_global_plan": (
        f"len({_DCP}.HuggingFaceStorageWriter(file() + '.hf').prepare_global_plan([planning()[1]]))"
    ),
    **{
        f"{_DCP}.HuggingFaceStorageWriter.{name}": (
            f"run(group(), {_DCP}.save({{'a': T(3)}}, storage_writer={_DCP}.HuggingFaceStorageWriter(file() + '.hf')) "
            "is not None)"
        )
        for name in ("write_data", "finish")
    },
    **{
        f"{_DCP}.{kind}.read_metadata": f"list({_DCP}.{kind}(shared()).read_metadata().state_dict_metadata)"
        for kind in ("HuggingFaceStorageReader", "QuantizedHuggingFaceStorageReader")
    },
    f"{_DCP}.HuggingFaceStorageReader.read_data": (
        f"run((x := {{'a': T(3) * 0}}), {_DCP}.load(x, storage_reader={_DCP}.HuggingFaceStorageReader(shared())), x)"
    ),
    f"{_DCP}.staging.DefaultStager.stage": f"{_STAGER}.stage({{'a': T(3)}})",
    f"{_DCP}.default_planner.create_default_global_save_plan": (
        f"len({_DCP}.default_planner.create_default_global_save_plan([planning()[1]]))"
    ),
    f"{_DCP}.default_planner.create_default_local_load_plan": (
        f"len({_DCP}.default_planner.create_default_local_load_plan("
        f"{{'a': T(3)}}, {_DCP}.FileSystemReader(kept()).read_metadata()).items)"
    ),
    f"{_DCP}.filesystem.FileSystem.ls": f"len({_DCP}.filesystem.FileSystem().ls(kept()))",
    f"{_DCP}.filesystem.SerializationFormat": f"{_DCP}.filesystem.SerializationFormat('torch_save').name",
    f"{_DCP}.state_dict_saver.AsyncCheckpointerType": f"{_DCP}.state_dict_saver.AsyncCheckpointerType('thread').name",
    f"{_DCP}.format_utils.BroadcastingTorchSaveReader.set_up_storage_reader": (
        f"(lambda r: r.set_up_storage_reader(r.read_metadata(), True))({_DCP}.format_utils.BroadcastingTorchSaveReader(file(T(3))))"
    ),
    f"{_DCP}.format_utils.BroadcastingTorchSaveReader.read_data": (
        "run(group(), (x := {'a': T(3) * 0}), torch.distributed.checkpoint.load(x, "
        f"storage_reader={_DCP}.format_utils.BroadcastingTorchSaveReader(), checkpoint_id=file({{'a': torch.ones(3)}}), "
        f"planner={_DCP}.format_utils.DynamicMetaLoadPlanner()), x)"
    ),
    f"{_DCP}.format_utils.dcp_to_torch_save": (
        f"(lambda f: run({_DCP}.format_utils.dcp_to_torch_save(kept(), f), torch.load(f)))(file())"
    ),
    f"{_DCP}.format_utils.torch_save_to_dcp": (
        f"run(group(), {_DCP}.format_utils.torch_save_to_dcp(file({{'a': torch.ones(3)}}), file() + '.dcp'))"
    ),
    f"{_DCP}.load_state_dict": (
        f"run((x := {{'a': T(3) * 0}}), {_DCP}.load_state_dict(x, {_DCP}.FileSystemReader(kept())), x)"
    ),
    f"{_DCP}.save_state_dict": (
        f"run(group(), {_DCP}.save_state_dict({{'a': T(3)}}, {_DCP}.FileSystemWriter(file() + '.dcp')) is not None)"
    ),
    f"{_DCP}.load_sharded_optimizer_state_dict": (
        f"{_DCP}.load_sharded_optimizer_state_dict({{'a': T(3)}}, 'optimizer', "
        f"{_DCP}.FileSystemReader(kept(a=T(3), optimizer={{'state': T(3)}})))"
    ),
    f"{_DCP}.planner_helpers.create_read_items_for_chunk_list": (
        "(lambda m: len(torch.distributed.checkpoint.planner_helpers.create_read_items_for_chunk_list("
        "'a', m, m.chunks)))(torch.distributed.checkpoint.FileSystemReader(kept()).read_metadata().state_dict_metadata['a'])"
    ),
    f"{_DCP}.state_dict.set_optimizer_state_dict": (
        f"(lambda m: (lambda o: {_DCP}.state_dict.set_optimizer_state_dict(m, o, "
        f"{_DCP}.state_dict.get_optimizer_state_dict(m, o)))(torch.optim.SGD(m.parameters())))(net())"
    ),
    f"{_DCP}.state_dict.set_state_dict": (
        f"(lambda m: (lambda o: {_DCP}.state_dict.set_state_dict(m, o, model_state_dict=m.state_dict(), optim_state_dict="
        f"{_DCP}.state_dict.get_optimizer_state_dict(m, o)).missing_keys)(torch.optim.SGD(m.parameters())))(net())"
    ),
    f"{_DCP}.utils.find_state_dict_object": (
        f"{_DCP}.utils.find_state_dict_object({{'a': T(3)}}, {_DCP}.metadata.MetadataIndex('a'))"
    ),
    f"{_DCP}.utils.find_tensor_shard": f"{_DCP}.utils.find_tensor_shard(T(3), {_DCP}.metadata.MetadataIndex('a'))",
    # Sharded modules.
    f"{_DIST}.fsdp.FSDPModule.reset_iter_state": "(lambda m: run(m._get_fsdp_state()._lazy_init(), m.reset_iter_state()))(torch.distributed.fsdp.fully_shard(net(), mesh=mesh()))",
    **{
        f"{_DIST}.fsdp.FSDPModule.{name}": (f"(lambda m: m.{name}([m]))({_DIST}.fsdp.fully_shard(net(), mesh=mesh()))")
        for name in ("set_modules_to_backward_prefetch", "set_modules_to_forward_prefetch")
    },
    f"{_DIST}.fsdp.share_comm_ctx": (
        f"{_DIST}.fsdp.share_comm_ctx([{_DIST}.fsdp.fully_shard(net(), mesh=mesh()) for _ in range(2)])"
    ),
    f"{_DIST}.fsdp.wrap.ModuleWrapPolicy": f"str({_DIST}.fsdp.wrap.ModuleWrapPolicy([torch.nn.Linear]))",
    f"{_FSDP}.forward": "sharded()[0].forward(T(2, 3))",
    **{
        f"{_FSDP}.{name}": f"(lambda m, o: {_FSDP}.{name}(m, o))(*sharded())"
        for name in ("optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict")
    },
    f"{_FSDP}.optim_state_dict_to_load": (
        f"(lambda m, o: {_FSDP}.optim_state_dict_to_load(m, o, {_FSDP}.optim_state_dict(m, o)))(*sharded())"
    ),
    f"{_FSDP}.rekey_optim_state_dict": (
        f"(lambda m, o: {_FSDP}.rekey_optim_state_dict({_FSDP}.full_optim_state_dict(m, o), "
        f"{_DIST}.fsdp.fully_sharded_data_parallel.OptimStateKeyType.PARAM_ID, net()))(*sharded())"
    ),
    **{
        f"{_FSDP}.{name}": f"(lambda m, o: {_FSDP}.{name}({_FSDP}.full_optim_state_dict(m, o), m))(*sharded())"
        for name in ("scatter_full_optim_state_dict", "shard_full_optim_state_dict")
    },
    f"{_FSDP}.flatten_sharded_optim_state_dict": (
        f"(lambda m, o: {_FSDP}.flatten_sharded_optim_state_dict({_FSDP}.sharded_optim_state_dict(m, o), m, o))(*sharded())"
    ),
    f"{_FSDP}.set_state_dict_type": (
        f"{_FSDP}.set_state_dict_type(sharded()[0], {_DIST}.fsdp.StateDictType.FULL_STATE_DICT).state_dict_type"
    ),
    # Pipelines.
    f"{_PIPE}.Pipe": "piped().num_stages",
    f"{_PIPE}.Pipe.build_stage": "piped().build_stage(0, torch.device(D)).stage_index",
    f"{_PIPE}.Pipe.forward": "piped().forward(T(2, 3))",
    f"{_PIPE}.Pipe.from_tracing": f"run(group(), {_PIPE}.Pipe.from_tracing(net(), (T(2, 3),)).num_stages)",
    f"{_PIPE}.Pipe.get_stage_module": "piped().get_stage_module(0)(T(2, 3))",
    f"{_PIPE}.Pipe.info": "piped().info().num_stages",
    f"{_PIPE}.pipeline": "piped()(T(2, 3))",
    f"{_PIPE}.build_stage": (
        f"(lambda p: {_PIPE}.build_stage(p.get_stage_module(0), 0, p.info(), torch.device(D)).stage_index)(piped())"
    ),
    f"{_PIPE}.PipelineStage.forward_maybe_with_nosync": "stage().forward_maybe_with_nosync(T(2, 3))",
    f"{_PIPE}.PipelineStage.backward_maybe_with_nosync": (
        "(lambda x: (lambda s, y: s.backward_maybe_with_nosync("
        "'full', {'stage_output': y, 'output_grads': None, 'input_values': [x]}))(stage(), net()(x).sum()))(T(2, 3, grad=True))"
    ),
    **{
        f"{_PIPE}.PipelineStage.{name}": (
            f"(lambda s: run({_PIPE}.ScheduleGPipe(s, 1).step(T(2, 3)), s.{call}))(stage())"
        )
        for name, call in (
            ("get_fwd_recv_ops", "get_fwd_recv_ops(0)"),
            ("get_fwd_send_ops", "get_fwd_send_ops(0)"),
        )
    },
    **{f"{_PIPE}.{name}": f"{_PIPE}.{name}(stage(), 1).step(T(2, 3))" for name in ("Schedule1F1B", "ScheduleGPipe")},
    **{
        f"{_PIPE}.{name}": f"{_PIPE}.{name}([stage()], 1).step(T(2, 3))"
        for name in ("ScheduleInterleaved1F1B", "ScheduleLoopedBFS", "ScheduleInterleavedZeroBubble")
    },
    **{
        f"{_PIPE}.{name}": f"{_PIPE}.{name}([stage(0, 2), stage(1, 2)], 2, {_LOSS}).step(T(4, 3), target=T(4, 3))"
        for name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
    },
    **{
        f"{_PIPE}.{name}.register_custom_function": (
            f"{_PIPE}.{name}({stages}).register_custom_function({_PIPE}.schedules.OVERLAP_F_B, lambda *given: None)"
        )
        for name, stages in (
            ("ScheduleInterleaved1F1B", "[stage()], 1"),
            ("ScheduleLoopedBFS", "[stage()], 1"),
            ("ScheduleInterleavedZeroBubble", "[stage()], 1"),
            ("ScheduleZBVZeroBubble", "[stage(0, 2), stage(1, 2)], 2"),
            ("ScheduleDualPipeV", "[stage(0, 2), stage(1, 2)], 2"),
        )
    },
    **{
        f"{_PIPE}.PipelineStage.{name}": (
            f"(lambda a, b: run({_PIPE}.ScheduleZBVZeroBubble([a, b], 2, {_LOSS}).step(T(4, 3), target=T(4, 3)), {call}))"
            "(stage(0, 2), stage(1, 2))"
        )
        for name, call in (
            ("set_local_fwd_input", "b.set_local_fwd_input((T(2, 3),), 0)"),
            ("set_local_bwd_input", "a.set_local_bwd_input((T(2, 3),), 0)"),
            ("get_local_bwd_output", "b.bwd_cache.update({0: (T(2, 3),)}), b.get_local_bwd_output(0)"),
        )
    },
    f"{_PIPE}.schedules.PipelineScheduleMulti.step": f"{_PIPE}.ScheduleLoopedBFS([stage()], 1).step(T(2, 3))",
    f"{_PIPE}.schedules.PipelineScheduleMulti.eval": f"{_PIPE}.ScheduleLoopedBFS([stage()], 1).eval(T(2, 3))",
    f"{_PIPE}.schedules.get_schedule_class": f"{_PIPE}.schedules.get_schedule_class('1F1B')",
    f"{_PIPE}.microbatch.merge_chunks": (
        f"{_PIPE}.microbatch.merge_chunks([T(2, 3), T(2, 3)], {_PIPE}.microbatch.TensorChunkSpec(0))"
    ),
    # DTensors.
    f"{_DIST}.tensor.debug.CommDebugMode.generate_json_dump": (
        f"(lambda c: run(entered(c, lambda: deep()(T(4, 3))), c.generate_json_dump(file())))({_DIST}.tensor.debug.CommDebugMode())"
    ),
    f"{_DIST}.tensor.debug.visualize_sharding": f"{_DIST}.tensor.debug.visualize_sharding({_SHARDED})",
    f"{_DIST}.tensor.distribute_module": f"{_DIST}.tensor.distribute_module(net(), mesh())",
    **{
        f"{_DIST}.tensor.{name}": f"{_DIST}.tensor.{name}({given}, device_mesh=mesh())"
        for name, given in (
            ("empty", "2, 3"),
            ("full", "(2, 3), 1.5"),
            ("ones", "2, 3"),
            ("rand", "2, 3"),
            ("randn", "2, 3"),
            ("zeros", "2, 3"),
        )
    },
    f"{_DIST}.tensor.parallel.fsdp.DTensorExtensions.all_gather_dtensor": (
        f"{_EXTENSIONS}.all_gather_dtensor({_SHARDED}, mesh())"
    ),
    f"{_DIST}.tensor.parallel.fsdp.DTensorExtensions.chunk_dtensor": (
        f"{_EXTENSIONS}.chunk_dtensor(T(4, 3), 0, mesh(1, 1)['all'])"
    ),
    f"{_DIST}.tensor.parallel.fsdp.DTensorExtensions.chunk_tensor": (
        f"{_EXTENSIONS}.chunk_tensor(T(4, 3), 0, 1, 1, group(), device=D).local_tensor()"
    ),
    f"{_DIST}.tensor.parallel.fsdp.DTensorExtensions.pre_load_state_dict_transform": (
        f"(lambda e: e.pre_load_state_dict_transform(e.chunk_tensor(T(4, 3), 0, 1, 1, group()))[0])({_EXTENSIONS})"
    ),
    f"{_DIST}.tensor.parallel.fsdp.DTensorExtensions.post_unflatten_transform": (
        f"(lambda e: e.post_unflatten_transform(*e.pre_flatten_transform({_SHARDED})))({_EXTENSIONS})"
    ),
}
