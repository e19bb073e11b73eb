// Scaled dot-product attention. Its composite checks the device type in C++, so virtual devices need their own kernels.
#include "native.h"

#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>
#include <limits>

namespace torchdevice {

namespace {

using c10::IValue;
using c10::OperatorHandle;

// The math path adds its mask. The operator above it has already converted a boolean mask to numbers.
std::optional<Tensor> additive(
    const std::optional<Tensor>& mask, c10::ScalarType dtype, double least = -std::numeric_limits<double>::infinity()) {
  if (!mask || !mask->defined() || mask->scalar_type() != c10::kBool) return mask;
  return at::zeros(mask->sizes(), mask->options().dtype(dtype)).masked_fill_(mask->logical_not(), least);
}

Stack math_attention(const OperatorHandle& op, const Stack& s) {
  const auto gqa = argument(op, s, "enable_gqa");
  const auto mask = additive(argument(op, s, "attn_mask").toOptional<Tensor>(), argument(op, s, "query").toTensor().scalar_type());
  return call_op("aten::_scaled_dot_product_attention_math",
                 {argument(op, s, "query"), argument(op, s, "key"), argument(op, s, "value"), mask,
                  argument(op, s, "dropout_p"), argument(op, s, "is_causal"), argument(op, s, "dropout_mask"),
                  argument(op, s, "scale"), gqa.isNone() ? IValue(false) : gqa});
}

// CUDA's memory-efficient kernel needs masks whose rows start at multiples of eight elements.
Tensor aligned(const Tensor& mask) {
  constexpr int64_t kMultiple = 8;
  bool fits = mask.stride(-1) == 1;
  for (int64_t d = 0; d + 1 < mask.dim(); d++) fits &= mask.stride(d) % kMultiple == 0;
  const int64_t last = mask.size(-1);
  return fits ? mask : at::pad(mask, {0, kMultiple - last % kMultiple}).slice(-1, 0, last);
}

template <class Signature>
c10::TypedOperatorHandle<Signature> typed(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// CUDA's own choice among its kernels, which are called with the virtual tensors, so that autograd's formulas apply.
class FusedAttention {
  using In = const Tensor&;
  using MaybeIn = const std::optional<Tensor>&;
  using Scale = std::optional<double>;
  using Several = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;
  enum Choice : int64_t { kMath = 0, kFlash = 1, kEfficient = 2, kCudnn = 3 };  // at::SDPBackend

 public:
  Tensor operator()(In query, In key, In value, MaybeIn mask, double dropout, bool causal, Scale scale, bool gqa) const {
    COUNT("aten::scaled_dot_product_attention");
    const auto choice = choose(query, key, value, mask, dropout, causal, scale, gqa);
    if (choice == kFlash) {
      const int64_t last = query.size(-1), padding = last % 8 ? 8 - last % 8 : 0;
      if (!padding) return std::get<0>(flash_.call(query, key, value, dropout, causal, false, scale));
      const auto padded = [&](In t) { return at::pad(t, {0, padding}); };
      // The scale is that of the size before the padding.
      const Scale by = scale ? scale : 1.0 / std::sqrt(static_cast<double>(last));
      return std::get<0>(flash_.call(padded(query), padded(key), padded(value), dropout, causal, false, by)).slice(-1, 0, last);
    }
    const bool wanted =
        at::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
    if (choice == kCudnn) {
      constexpr double kLeast = -65504.0;  // as in torch: cuDNN does not support -inf
      const auto bias = additive(mask, query.scalar_type(), kLeast);
      return std::get<0>(cudnn_.call(query, key, value, bias, wanted, dropout, causal, false, scale));
    }
    auto bias = additive(mask, query.scalar_type());
    if (choice != kEfficient)
      return std::get<0>(math_.call(query, key, value, bias, dropout, causal, std::nullopt, scale, gqa));
    if (bias && bias->defined()) bias = aligned(*bias).expand({query.size(0), query.size(1), query.size(2), key.size(2)});
    return std::get<0>(efficient_.call(query, key, value, bias, wanted, dropout, causal, scale));
  }

 private:
  int64_t choose(In query, In key, In value, MaybeIn mask, double dropout, bool causal, Scale scale, bool gqa) const {
    // Tensors of torch.compile have no data, which the choice does not read. Their sizes may be symbols, which it reads.
    const auto symbolic = [](In t) { return t.unsafeGetTensorImpl()->has_symbolic_sizes_strides(); };
    if (symbolic(query) || symbolic(key) || symbolic(value)) return kMath;
    c10::impl::ExcludeDispatchKeyGuard not_traced(c10::python_ks);
    Call call;
    call.keep_requires_grad = true;  // the choice depends on it
    Computing here;
    const auto seen = [&](In t) { return t.defined() && is_virtual(t) ? call.stand_in(t) : t; };
    const auto seen_mask = mask ? std::optional<Tensor>(seen(*mask)) : std::nullopt;
    return choose_.call(seen(query), seen(key), seen(value), seen_mask, dropout, causal, scale, gqa);
  }

  const c10::TypedOperatorHandle<int64_t(In, In, In, MaybeIn, double, bool, Scale, bool)> choose_ =
      typed<int64_t(In, In, In, MaybeIn, double, bool, Scale, bool)>("aten::_fused_sdp_choice");
  const c10::TypedOperatorHandle<Several(In, In, In, double, bool, bool, Scale)> flash_ =
      typed<Several(In, In, In, double, bool, bool, Scale)>("aten::_scaled_dot_product_flash_attention");
  const c10::TypedOperatorHandle<std::tuple<Tensor, Tensor, Tensor, Tensor>(In, In, In, MaybeIn, bool, double, bool, Scale)>
      efficient_ = typed<std::tuple<Tensor, Tensor, Tensor, Tensor>(In, In, In, MaybeIn, bool, double, bool, Scale)>(
          "aten::_scaled_dot_product_efficient_attention");
  const c10::TypedOperatorHandle<Several(In, In, In, MaybeIn, bool, double, bool, bool, Scale)> cudnn_ =
      typed<Several(In, In, In, MaybeIn, bool, double, bool, bool, Scale)>("aten::_scaled_dot_product_cudnn_attention");
  const c10::TypedOperatorHandle<std::tuple<Tensor, Tensor>(In, In, In, MaybeIn, double, bool, MaybeIn, Scale, bool)> math_ =
      typed<std::tuple<Tensor, Tensor>(In, In, In, MaybeIn, double, bool, MaybeIn, Scale, bool)>(
          "aten::_scaled_dot_product_attention_math");
};

}  // namespace

void attention(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  COUNT("aten::scaled_dot_product_attention");
  give(op, stack, math_attention(op, *stack)[0]);
}

Tensor fused_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask, double dropout, bool causal,
    std::optional<double> scale, bool gqa) {
  static const FusedAttention attend;
  return attend(query, key, value, mask, dropout, causal, scale, gqa);
}

void attention_mps(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  auto both = math_attention(op, *stack);
  give(op, stack, both[0], both[1]);
}

}  // namespace torchdevice
