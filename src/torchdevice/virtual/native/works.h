// The work that a collective returns.
#pragma once

#include <ATen/core/ivalue.h>

namespace torchdevice {

// `first`: the first argument of the operator, with the tensors of the program. `result`: one of its results.
void give_work_its_results(const c10::IValue& first, c10::IValue& result);

}  // namespace torchdevice
