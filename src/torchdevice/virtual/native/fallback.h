// What the fallback's kernel and the virtual device share.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace torchdevice::fallback {

// Computes an operator that the device refuses in the device's own memory, without a copy. A virtual device whose memory is
// the host's sets it; elsewhere it is null, and arguments are copied to the CPU.
using ComputeInPlace = void (*)(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
extern ComputeInPlace compute_in_place;
// The type of the device that really holds the memory, where a virtual device stands before it.
extern std::optional<c10::DeviceType> holder;
// The dtype of a result that the CPU computed in `dtype`: the device may lack that one.
c10::ScalarType dtype_there(c10::ScalarType dtype);

}  // namespace torchdevice::fallback
