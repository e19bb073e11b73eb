// What kernels written by hand share.
#pragma once

#include "relabel.h"

#include <utility>

namespace torchdevice {

// One record per call site: no lookup by name on the hot path.
#define COUNT(name)                                          \
  do {                                                       \
    static OpRecord* record = make_record(name, 0, 0);       \
    record->calls.fetch_add(1, std::memory_order_relaxed);   \
  } while (0)

inline Stack call_op(const char* name, Stack stack, const char* overload = "") {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).callBoxed(&stack);
  return stack;
}

template <class... Results>
void give(const c10::OperatorHandle& op, Stack* stack, Results&&... results) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, std::forward<Results>(results)...);
}

// Attention, by the math path and by CUDA's own choice among its kernels: see attention.cpp.
void attention(const c10::OperatorHandle& op, DispatchKeySet, Stack* stack);
void attention_mps(const c10::OperatorHandle& op, DispatchKeySet, Stack* stack);
Tensor fused_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask, double dropout, bool causal,
    std::optional<double> scale, bool gqa);

}  // namespace torchdevice
