// Shared declarations of the fallback kernel and the virtual device.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace torchdevice::fallback {

// Computes an operator that the device refuses in the device's own memory, without a copy. A virtual device whose
// memory is host memory sets it. Otherwise it is null, and arguments are copied to the CPU.
using ComputeInPlace = void (*)(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
extern ComputeInPlace compute_in_place;
// The type of the device that holds the memory, if a virtual device hides it.
extern std::optional<c10::DeviceType> holder;
// The dtype of a result that the CPU computed in `dtype`, which the device may lack.
c10::ScalarType dtype_there(c10::ScalarType dtype);

// Whether torch can call the kernel below another one: since 2.10.
template <class Handle>
constexpr bool tells_below = requires(const Handle& op) { op.getComputedKernelForDispatchKey(c10::DispatchKey::CPU); };

}  // namespace torchdevice::fallback
