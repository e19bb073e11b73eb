// Operators without a deterministic kernel on CUDA. With torch.use_deterministic_algorithms, CUDA's kernels raise an
// error or warn. The kernels of the CPU are deterministic and do not, so this file does.
#include "device.h"

#include <ATen/Context.h>
#include <torch/version.h>

namespace torchdevice {

struct Alert {
  const char* op;      // with an overload, or without: all overloads
  const char* kernel;  // the name in torch's message
  bool (*applies)(const c10::OperatorHandle& op, const Stack& stack) = nullptr;  // null: always
};

namespace {

bool is_weighted(const c10::OperatorHandle& op, const Stack& stack) { return !argument(op, stack, "weights").isNone(); }
bool is_reduced(const c10::OperatorHandle& op, const Stack& stack) { return argument(op, stack, "reduction").toInt() != 0; }
bool accumulates(const c10::OperatorHandle& op, const Stack& stack) { return argument(op, stack, "accumulate").toBool(); }
bool takes_largest(const c10::OperatorHandle& op, const Stack& stack) {
  constexpr int64_t kMax = 2;  // at::native::EmbeddingBagMode
  return argument(op, stack, "mode").toInt() == kMax;
}
bool multiplies(const c10::OperatorHandle& op, const Stack& stack) {
  const c10::IValue reduce = argument(op, stack, "reduce");
  return reduce.isString() && (reduce.toStringView() == "prod" || reduce.toStringView() == "multiply");
}

const Alert kAlerts[] = {
    {"_adaptive_avg_pool2d_backward", "adaptive_avg_pool2d_backward_cuda"},
    {"_adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_backward_cuda"},
    {"_ctc_loss_backward", "ctc_loss_backward_gpu"},
    {"_embedding_bag_backward", "embedding_bag_backward_cuda_max", takes_largest},
    {"_embedding_bag_dense_backward", "embedding_bag_backward_cuda_max", takes_largest},
    {"_upsample_bicubic2d_aa_backward", "upsample_bicubic2d_aa_backward_out_cuda"},
    {"_upsample_bilinear2d_aa_backward", "upsample_bilinear2d_aa_backward_out_cuda"},
    {"adaptive_max_pool2d_backward", "adaptive_max_pool2d_backward_cuda"},
    {"avg_pool3d_backward", "avg_pool3d_backward_cuda"},
    {"bincount", "_bincount_cuda", is_weighted},
    {"fractional_max_pool2d_backward", "fractional_max_pool2d_backward_cuda"},
    {"fractional_max_pool3d_backward", "fractional_max_pool3d_backward_cuda"},
    {"grid_sampler_2d_backward", "grid_sampler_2d_backward_cuda"},
    {"grid_sampler_3d_backward", "grid_sampler_3d_backward_cuda"},
    {"histc", "_histc_cuda"},
    {"index_reduce", "index_reduce_cuda"},
    {"index_reduce_", "index_reduce_cuda"},
    {"kthvalue", "kthvalue CUDA"},
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13  // later versions have a deterministic kernel
    {"max_pool3d_with_indices_backward", "max_pool3d_with_indices_backward_cuda"},
#endif
    {"median.dim", "median CUDA with indices output"},
    {"median.dim_values", "median CUDA with indices output"},
    {"nanmedian.dim", "median CUDA with indices output"},
    {"nanmedian.dim_values", "median CUDA with indices output"},
    {"nll_loss2d_forward", "nll_loss2d_forward_out_cuda_template", is_reduced},
    {"put_", "put_", accumulates},  // without it the CPU's kernel raises the error itself
    {"reflection_pad1d_backward", "reflection_pad1d_backward_out_cuda"},
    {"reflection_pad2d_backward", "reflection_pad2d_backward_cuda"},
    {"reflection_pad3d_backward", "reflection_pad3d_backward_out_cuda"},
    {"replication_pad1d_backward", "replication_pad1d_backward_cuda"},
    {"replication_pad2d_backward", "replication_pad2d_backward_cuda"},
    {"replication_pad3d_backward", "replication_pad3d_backward_cuda"},
    {"scatter", "scatter_reduce_cuda_kernel", multiplies},
    {"scatter_", "scatter_reduce_cuda_kernel", multiplies},
    {"scatter_reduce", "scatter_reduce_cuda_prod_", multiplies},
    {"scatter_reduce_", "scatter_reduce_cuda_prod_", multiplies},
    {"upsample_bicubic2d_backward", "upsample_bicubic2d_backward_out_cuda"},
    {"upsample_bilinear2d_backward", "upsample_bilinear2d_backward_out_cuda"},
    {"upsample_linear1d_backward", "upsample_linear1d_backward_out_cuda"},
    {"upsample_trilinear3d_backward", "upsample_trilinear3d_backward_out_cuda"},
};

}  // namespace

const Alert* alert_of(std::string_view name) {
  constexpr std::string_view kNamespace = "aten::";
  if (config.type != DeviceType::CUDA || !backing.is_host() || name.substr(0, kNamespace.size()) != kNamespace) return nullptr;
  name.remove_prefix(kNamespace.size());
  for (const Alert& each : kAlerts)
    if (name == each.op || name.substr(0, name.find('.')) == each.op) return &each;
  return nullptr;
}

void alert(const Alert& about, const c10::OperatorHandle& op, const Stack& stack) {
  if (!about.applies || about.applies(op, stack)) at::globalContext().alertNotDeterministic(about.kernel);
}

}  // namespace torchdevice
