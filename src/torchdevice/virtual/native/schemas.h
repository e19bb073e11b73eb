// What the schema of an operator says about its arguments, and what it leaves out.
#pragma once

#include <ATen/core/function_schema.h>

#include <cstddef>
#include <string_view>

namespace torchdevice {

// Whether the operator writes to an argument. The schemas of older norms (native_batch_norm, cudnn_batch_norm,
// batch_norm_update_stats …) do not declare that they update the running statistics. They are recognised by the factor
// of the update. Functional variants have it too: for them the answer costs a copy of a few numbers.
inline bool is_written(const c10::FunctionSchema& schema, size_t place) {
  const c10::Argument& argument = schema.arguments()[place];
  if (argument.alias_info()) return argument.alias_info()->isWrite();
  const std::string_view name = argument.name();  // compares lengths first, without a call: this runs at every call
  return (name == "running_mean" || name == "running_var") &&
      (schema.argumentIndexWithName("momentum") || schema.argumentIndexWithName("exponential_average_factor"));
}

}  // namespace torchdevice
