// Operators that need their own kernel: those that create or view memory, copies between devices, composites whose C++
// code checks the device type, and a few that only the real CUDA and MPS backends have. Prefer boxed kernels: they have
// no C++ signature, which differs between torch versions.
#include "native.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_lazy_clone_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/cudnn_is_acceptable.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>

#include <map>
#include <mutex>
#include <string_view>

namespace torchdevice {

namespace {

using c10::IntArrayRef;
using c10::IValue;
using c10::OperatorHandle;

// ------------------------------------------------------------------------------------------------ memory and views
void check_new(std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout, std::optional<bool> pin) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      c10::layout_or_default(layout) == c10::kStrided, "only strided tensors are supported on ", config.key());
  TORCH_CHECK(!c10::pinned_memory_or_default(pin), "Only dense CPU tensors can be pinned");
  check_dtype(c10::dtype_or_default(dtype));
}

// Called with every new tensor before the first write.
Tensor finished(Tensor made) {
  if (C10_UNLIKELY(capturing())) capture_own(made);
  auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms()) && context.deterministicFillUninitializedMemory())
    at::native::fill_empty_deterministic_(made);
  return made;
}

Tensor empty(IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
             std::optional<Device> device, std::optional<bool> pin, std::optional<c10::MemoryFormat> format) {
  COUNT("aten::empty.memory_format");
  check_new(dtype, layout, pin);
  TORCH_CHECK(!config.is_mps() || size.size() <= 16, "MPS supports tensors with dimensions <= 16, but got ", size.size(), ".");
  c10::OptionalDeviceGuard guard(device);
  return finished(at::detail::empty_generic(
      size, virtual_allocator(), config.dense_keys(), c10::dtype_or_default(dtype), format));
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout> layout, std::optional<Device> device, std::optional<bool> pin) {
  COUNT("aten::empty_strided");
  check_new(dtype, layout, pin);
  c10::OptionalDeviceGuard guard(device);
  return finished(at::detail::empty_strided_generic(
      size, stride, virtual_allocator(), config.dense_keys(), c10::dtype_or_default(dtype)));
}

Tensor as_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}
Tensor view(const Tensor& self, IntArrayRef size) { return at::native::view(self, size); }
Tensor reshape_alias(const Tensor& self, IntArrayRef size, IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}
Tensor unfold(const Tensor& self, int64_t dim, int64_t size, int64_t step) { return at::native::unfold(self, dim, size, step); }
Tensor& set_storage_offset(Tensor& self, c10::Storage storage, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(storage), offset, size, stride);
}
Tensor& set_quantized(Tensor& self, c10::Storage storage, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  return at::native::set_storage_quantized_(self, std::move(storage), offset, size, stride);
}
Tensor& set_storage(Tensor& self, c10::Storage storage) { return at::native::set_(self, std::move(storage)); }
Tensor& set_tensor(Tensor& self, const Tensor& source) { return at::native::set_tensor_(self, source); }
Tensor& set_empty(Tensor& self) {
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, virtual_allocator(), true);
  return at::native::set_storage_cpu_(self, std::move(none), 0, {0}, {});
}

Tensor& copy_(Tensor& self, const Tensor& src, bool non_blocking) {
  COUNT("aten::copy_");
  // The host waits for such a copy, unless it is asynchronous.
  if (C10_UNLIKELY(capturing() && !is_virtual(self)) && !(non_blocking && self.has_storage() && is_pinned(self.storage().data())))
    refuse_to_wait();
  if (C10_UNLIKELY(capturing())) capture_touch(self);
  if (is_virtual(self) != is_virtual(src) && !non_blocking) {
    if (C10_UNLIKELY(capturing())) refuse_to_wait();
    about_to_wait();
    wait_for_current_stream(is_virtual(self) ? self.device().index() : src.device().index());
  }
  const auto compute = [&](const Tensor& to, const Tensor& from) {
    at::AutoDispatchBelowADInplaceOrView guard;
    Computing here;
    to.copy_(from, non_blocking && !backing.is_host());
  };
  const auto copied_by_loans = [&] {
    Loans loans(false);
    const Tensor* to = is_virtual(self) ? loans.take(self, true) : &self;
    if (!to) return false;
    const Tensor* from = is_virtual(src) ? loans.take(src, false) : &src;
    if (!from) return false;
    compute(*to, *from);
    loans.check_written();
    return true;
  };
  if (!copied_by_loans()) {
    Call call;
    compute(is_virtual(self) ? call.stand_in(self, true) : self, is_virtual(src) ? call.stand_in(src) : src);
  }
  if (C10_UNLIKELY(capturing())) capture_copy(self, src);
  if (non_blocking && backing.is_host() && is_virtual(self) != is_virtual(src)) {
    const Tensor& here = is_virtual(self) ? src : self;
    const c10::Stream stream = current_stream((is_virtual(self) ? self : src).device().index());
    if (here.has_storage()) use_pinned_on(here.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(), stream);
  }
  return self;
}

// The function with which torch's own fallback writes results to an out= argument.
Tensor copy_from_and_resize(const Tensor& self, const Tensor& dst) {
  dst.resize_(self.sizes());
  Tensor to = dst;
  return copy_(to, self, false);
}

// ---------------------------------------------------------------------------------------------------- boxed kernels
using Function = void (*)(const OperatorHandle&, DispatchKeySet, Stack*);

void count(const char* name) { make_record(name, 0, 0)->calls.fetch_add(1, std::memory_order_relaxed); }

struct Custom final : c10::OperatorKernel {
  Function function;
  explicit Custom(Function f) : function(f) {}
  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) { function(op, keys, stack); }
};

void choose_math(const OperatorHandle& op, DispatchKeySet, Stack* stack) { give(op, stack, int64_t(0)); }
void answer_false(const OperatorHandle& op, DispatchKeySet, Stack* stack) { give(op, stack, false); }
// The memory is not reused before the stream has reached this point.
void record_stream(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const Tensor self = argument(op, *stack, "self").toTensor();
  const c10::Stream stream = argument(op, *stack, "s").toStream();
  if (self.has_storage()) use_on(self.storage().data_ptr(), stream);
  torch::jit::drop(*stack, op.schema().arguments().size());
}

// The kernel of the CPU calls operators. With the virtual tensors, each of them is dispatched to this library again,
// and the one that draws uses the generator of the virtual device.
void dropout(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  count("aten::native_dropout");
  const bool nested = keys.has(DispatchKey::NestedTensor);
  at::AutoDispatchBelowADInplaceOrView guard;
  op.redispatchBoxed(
      DispatchKeySet(backing.key(nested ? DispatchKey::NestedTensor : DispatchKey::Dense)), stack);
}

// The composite checks the device type: on CUDA it uses the fused kernel, and virtual devices on CUDA do too.
void fused_dropout(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const IValue input = argument(op, *stack, "input"), p = argument(op, *stack, "p"), train = argument(op, *stack, "train");
  if (!train.toBool() || p.toDouble() <= 0 || p.toDouble() >= 1 || input.toTensor().numel() == 0)
    return op.redispatchBoxed(DispatchKeySet(DispatchKey::AutogradCPU), stack);
  give(op, stack, call_op("aten::native_dropout", {input, p, train})[0]);
}

// The softmax kernels of the CPU refuse half_to_float=True, those of GPUs do not.
void softmax(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const size_t base = stack->size() - op.schema().arguments().size();
  if ((*stack)[base + 2].toBool()) {
    (*stack)[base] = (*stack)[base].toTensor().to(c10::kFloat);
    (*stack)[base + 2] = false;
  }
  run_boxed(op, keys, stack, make_record(toString(op.operator_name()), 0, 0));
}
void softmax_backward(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const size_t base = stack->size() - op.schema().arguments().size();
  const auto gradient = (*stack)[base].toTensor().scalar_type();
  const auto wanted = (*stack)[base + 3].toScalarType();
  (*stack)[base + 3] = gradient;
  run_boxed(op, keys, stack, make_record(toString(op.operator_name()), 0, 0));
  if (wanted != gradient) stack->back() = stack->back().toTensor().to(wanted);
}

Tensor plus(const Tensor& x, const IValue& bias) { return bias.isNone() || !bias.toTensor().defined() ? x : x + bias.toTensor(); }

void lstm_cell(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  count("aten::_thnn_fused_lstm_cell");
  const Tensor sum = argument(op, *stack, "input_gates").toTensor() + argument(op, *stack, "hidden_gates").toTensor();
  const Tensor gates = plus(plus(sum, argument(op, *stack, "input_bias")), argument(op, *stack, "hidden_bias"));
  const auto g = gates.chunk(4, 1);
  const Tensor cell = g[1].sigmoid() * argument(op, *stack, "cx").toTensor() + g[0].sigmoid() * g[2].tanh();
  give(op, stack, g[3].sigmoid() * cell.tanh(), cell, gates.detach());
}
void gru_cell(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  count("aten::_thnn_fused_gru_cell");
  const Tensor in = plus(argument(op, *stack, "input_gates").toTensor(), argument(op, *stack, "input_bias"));
  const Tensor hidden = plus(argument(op, *stack, "hidden_gates").toTensor(), argument(op, *stack, "hidden_bias"));
  const auto i = in.chunk(3, 1), h = hidden.chunk(3, 1);
  const Tensor reset = (i[0] + h[0]).sigmoid(), update = (i[1] + h[1]).sigmoid(), fresh = (i[2] + reset * h[2]).tanh();
  give(op, stack, (argument(op, *stack, "hx").toTensor() - fresh) * update + fresh, in.detach());
}

// cuDNN draws for the dropout between layers from its own state, one per device, as in torch.cuda.
IValue dropout_state(const Tensor& input, double p) {
  static auto* mutex = new std::mutex;
  static auto* states = new std::map<DeviceIndex, IValue>;
  std::lock_guard<std::mutex> lock(*mutex);
  IValue& state = (*states)[input.device().index()];
  if (state.isNone()) {
    const auto seed = at::empty({}, input.options().dtype(c10::kLong)).random_().item<int64_t>();
    state = call_op("aten::_cudnn_init_dropout_state",
                    {p, true, seed, c10::ScalarType::Byte, c10::Layout::Strided, input.device(), false})[0];
  }
  return state;
}

// torch's composites use cuDNN for tensors with the type CUDA. Its operator is called with the virtual tensors, so that
// autograd's formula applies. Weights need not be contiguous: they are concatenated at every call, without torch's
// warning.
bool cudnn_recurrent(const OperatorHandle& op, Stack* stack) {
  if (backing.type() != DeviceType::CUDA || !argument(op, *stack, "train").toBool()) return false;
  const std::map<std::string_view, int64_t> modes{
      {"aten::rnn_relu", 0}, {"aten::rnn_tanh", 1}, {"aten::lstm", 2}, {"aten::gru", 3}};  // cudnnRNNMode_t
  const int64_t mode = modes.at(op.schema().name());
  const bool packed = op.schema().overload_name() == "data", is_lstm = mode == 2;
  const Tensor input = argument(op, *stack, packed ? "data" : "input").toTensor();
  const auto weights = argument(op, *stack, "params").toTensorList();
  for (const Tensor& weight : weights.vec())
    if (weight.scalar_type() != input.scalar_type()) return false;  // autocast
  {
    Call call;
    Computing here;
    if (!at::cudnn_is_acceptable(call.stand_in(input))) return false;
  }
  const IValue hidden = argument(op, *stack, "hx");
  const Tensor hx = is_lstm ? hidden.toTensorVector()[0] : hidden.toTensor();
  const Tensor cx = is_lstm ? hidden.toTensorVector()[1] : Tensor();
  const bool projected = is_lstm && cx.size(2) != hx.size(2);
  c10::List<int64_t> batch_sizes;
  if (packed) {
    const Tensor sizes = argument(op, *stack, "batch_sizes").toTensor();
    for (int64_t i = 0; i < sizes.size(0); i++) batch_sizes.push_back(sizes[i].item<int64_t>());
  }
  const double p = argument(op, *stack, "dropout").toDouble();
  const int64_t per_layer = (argument(op, *stack, "has_biases").toBool() ? 4 : 2) + projected;
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard silence(&quiet);
  const Stack results = call_op(
      "aten::_cudnn_rnn",
      {input, weights, per_layer, IValue(), hx, is_lstm ? IValue(cx) : IValue(), mode, is_lstm ? cx.size(2) : hx.size(2),
       projected ? hx.size(2) : 0, argument(op, *stack, "num_layers"), packed ? IValue(false) : argument(op, *stack, "batch_first"),
       p, true, argument(op, *stack, "bidirectional"), batch_sizes, p > 0 ? dropout_state(input, p) : IValue()});
  if (is_lstm) give(op, stack, results[0], results[1], results[2]);
  else give(op, stack, results[0], results[1]);
  return true;
}

// Without gradients the backing computes the whole composite. (On the CPU this is for XPU, whose own composite is a
// stub of oneDNN.) With gradients cuDNN is used, or the composite decomposes.
void recurrent(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  bool differentiable = false;
  for (size_t i = stack->size() - op.schema().arguments().size(); i < stack->size(); i++) {
    const IValue& v = (*stack)[i];
    if (v.isTensor()) differentiable |= v.toTensor().requires_grad();
    if (v.isTensorList())
      for (const Tensor& t : v.toTensorVector()) differentiable |= t.requires_grad();
  }
  if (!differentiable || !at::GradMode::is_enabled())
    run_boxed(op, keys, stack, make_record(toString(op.operator_name()), 0, 0));
  else if (!cudnn_recurrent(op, stack))
    op.redispatchBoxed(DispatchKeySet(DispatchKey::AutogradCPU), stack);
}

// mm(a, b, out_dtype) and similar operators: the CPU has no kernel that accumulates into another dtype.
void typed_product(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const auto dtype = argument(op, *stack, "out_dtype").toScalarType();
  const auto& arguments = op.schema().arguments();
  const size_t base = stack->size() - arguments.size();
  Stack plain;
  for (size_t i = 0; i < arguments.size(); i++) {
    if (arguments[i].name() == "out_dtype" || arguments[i].is_out()) continue;
    const IValue& v = (*stack)[base + i];
    plain.push_back(v.isTensor() ? IValue(v.toTensor().to(dtype)) : v);
  }
  Tensor result = call_op(op.schema().name().c_str(), std::move(plain))[0].toTensor();
  const IValue out = argument(op, *stack, "out");
  if (!out.isNone()) result = out.toTensor().resize_(result.sizes()).copy_(result);
  give(op, stack, result);
}

// The operators that SyncBatchNorm calls on GPUs. The channel is dimension 1; statistics are float32.
std::vector<int64_t> all_but_channel(const Tensor& x) {
  std::vector<int64_t> dims{0};
  for (int64_t d = 2; d < x.dim(); d++) dims.push_back(d);
  return dims;
}
Tensor per_channel(const Tensor& v, const Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = v.numel();
  return v.view(shape);
}
Tensor tensor(const OperatorHandle& op, Stack* stack, const char* name) {
  const IValue v = argument(op, *stack, name);
  return v.isNone() ? Tensor() : v.toTensor();
}

void batch_norm_stats(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const Tensor x = tensor(op, stack, "input").to(c10::kFloat);
  const auto dims = all_but_channel(x);
  const Tensor mean = x.mean(dims), var = (x - per_channel(mean, x)).square().mean(dims);
  give(op, stack, mean, (var + argument(op, *stack, "eps").toDouble()).rsqrt());
}
void batch_norm_gather(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const double eps = argument(op, *stack, "eps").toDouble(), momentum = argument(op, *stack, "momentum").toDouble();
  const Tensor means = tensor(op, stack, "mean"), given = tensor(op, stack, "counts");
  const Tensor counts = given.defined() ? given.to(means.scalar_type()).view({-1, 1})
                                        : at::full({means.size(0), 1}, argument(op, *stack, "count").toInt(), means.options());
  const Tensor vars = tensor(op, stack, "invstd").square().reciprocal() - eps, total = counts.sum();
  const Tensor mean = (means * counts).sum(0) / total;
  const Tensor var = ((vars + (means - mean).square()) * counts).sum(0) / total;
  Tensor running_mean = tensor(op, stack, "running_mean"), running_var = tensor(op, stack, "running_var");
  if (running_mean.defined()) running_mean.mul_(1 - momentum).add_(mean * momentum);
  if (running_var.defined()) running_var.mul_(1 - momentum).add_(var * (total / (total - 1)) * momentum);
  give(op, stack, mean, (var + eps).rsqrt());
}
void batch_norm_elemt(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const Tensor x = tensor(op, stack, "input"), weight = tensor(op, stack, "weight"), bias = tensor(op, stack, "bias");
  Tensor y = (x - per_channel(tensor(op, stack, "mean"), x)) * per_channel(tensor(op, stack, "invstd"), x);
  if (weight.defined()) y = y * per_channel(weight, x);
  if (bias.defined()) y = y + per_channel(bias, x);
  give(op, stack, y.to(x.scalar_type()));
}
void batch_norm_backward_reduce(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const Tensor x = tensor(op, stack, "input"), dy = tensor(op, stack, "grad_out").to(c10::kFloat);
  const auto dims = all_but_channel(x);
  const Tensor sum = dy.sum(dims), product = (dy * (x - per_channel(tensor(op, stack, "mean"), x))).sum(dims);
  give(op, stack, sum, product, product * tensor(op, stack, "invstd"), sum.clone());
}
void batch_norm_backward_elemt(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const Tensor x = tensor(op, stack, "input"), weight = tensor(op, stack, "weight");
  const Tensor total = tensor(op, stack, "count").sum(), invstd = per_channel(tensor(op, stack, "invstd"), x);
  const Tensor centred = x - per_channel(tensor(op, stack, "mean"), x);
  Tensor dx = tensor(op, stack, "grad_out") - per_channel(tensor(op, stack, "sum_dy"), x) / total -
      centred * invstd.square() * per_channel(tensor(op, stack, "sum_dy_xmu"), x) / total;
  dx = dx * invstd;
  if (weight.defined()) dx = dx * per_channel(weight, x);
  give(op, stack, dx.to(x.scalar_type()));
}

void lazy_clone(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const Tensor self = tensor(op, stack, "self");
  // A graph records copies.
  const bool can_wait = !capturing() && make_shareable(*self.storage().unsafeGetStorageImpl());
  give(op, stack, can_wait ? at::native::_lazy_clone(self) : self.clone());
}

// Composites of torch that choose a kernel by the device type.
void on_backing(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  run_boxed(op, keys, stack, make_record(toString(op.operator_name()), 0, 0));
}

// The composite orders indices by a kernel for the type of their device. Its own check of devices comes first.
void validate_coo(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  if (tensor(op, stack, "indices").device() == tensor(op, stack, "values").device()) return on_backing(op, keys, stack);
  op.redispatchBoxed(DispatchKeySet(DispatchKey::AutogradCPU), stack);
}

// The composite calls that check in C++, not by the dispatcher, if torch.sparse.check_sparse_tensor_invariants is on.
void make_coo(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  struct Unchecked {
    Unchecked() { at::globalContext().setCheckSparseTensorInvariants(false); }
    ~Unchecked() { at::globalContext().setCheckSparseTensorInvariants(true); }
  };
  std::optional<Unchecked> unchecked;
  const std::optional<bool> checked = at::globalContext().checkSparseTensorInvariants();  // a bool in torch 2.9
  if (checked && *checked) {
    at::_validate_sparse_coo_tensor_args(
        tensor(op, stack, "indices"), tensor(op, stack, "values"), argument(op, *stack, "size").toIntVector(),
        argument(op, *stack, "is_coalesced").toOptional<bool>());
    unchecked.emplace();
  }
  op.redispatchBoxed(DispatchKeySet(DispatchKey::AutogradCPU), stack);
}

// The CPU's kernel refuses complex numbers.
void sum_of_numbers(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const Tensor self = tensor(op, stack, "self"), out = tensor(op, stack, "out");
  if (!self.is_complex()) return on_backing(op, keys, stack);
  Stack sum{self.masked_fill(self.isnan(), 0), argument(op, *stack, "dim"), argument(op, *stack, "keepdim"),
            argument(op, *stack, "dtype")};
  const Tensor result = call_op("aten::sum", std::move(sum), "dim_IntList")[0].toTensor();
  give(op, stack, out.defined() ? out.resize_(result.sizes()).copy_(result) : result);
}

// On a Mac the sums are float32 or int32. On the CPU they are float64 unless the weights are float32.
void bincount(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const Tensor weights = tensor(op, stack, "weights");
  if (weights.defined()) (*stack)[stack->size() - 2] = weights.to(c10::kFloat);
  on_backing(op, keys, stack);
  if (weights.defined() && !weights.is_floating_point()) stack->back() = stack->back().toTensor().to(c10::kInt);
}

// With the error message of a Mac.
void isin(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const Tensor elements = tensor(op, stack, "elements"), among = tensor(op, stack, "test_elements");
  if (!elements.numel() || !among.numel()) return on_backing(op, keys, stack);
  TORCH_CHECK(is_virtual(elements) && is_virtual(among), "Expected elements.is_mps() && test_elements.is_mps() to be true, but got false.");
  TORCH_CHECK(elements.dtype() == among.dtype(), "Expected elements.dtype() == test_elements.dtype() to be true, but got false.");
  on_backing(op, keys, stack);
}

// A Mac draws floating-point and complex numbers, but no integers.
void normal(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const auto dtype = tensor(op, stack, "self").scalar_type();
  TORCH_CHECK_TYPE(!c10::isIntegralType(dtype, /*includeBool=*/true), "normal_ is not supported for ", dtype, " on MPS");
  on_backing(op, keys, stack);
}

// torch uses cuDNN's kernels for bilinear samples with aligned corners and zero padding.
constexpr int64_t kBilinear = 0, kZeros = 0;
void cudnn_grid_sampler(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  give(op, stack, at::grid_sampler_2d(tensor(op, stack, "self"), tensor(op, stack, "grid"), kBilinear, kZeros, true));
}
void cudnn_grid_sampler_backward(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  auto [input, grid] = at::grid_sampler_2d_backward(
      tensor(op, stack, "grad_output"), tensor(op, stack, "self"), tensor(op, stack, "grid"), kBilinear, kZeros, true,
      {true, true});
  give(op, stack, input, grid);
}

// The names of cuDNN that autograd and autocast use.
void cudnn_convolution(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const IValue more = argument(op, *stack, "output_padding");
  const bool transposed = more.isIntList();
  const IValue none = std::vector<int64_t>(argument(op, *stack, "padding").toIntVector().size(), 0);
  Stack result = call_op(
      "aten::convolution",
      {argument(op, *stack, "self"), argument(op, *stack, "weight"), IValue(), argument(op, *stack, "stride"),
       argument(op, *stack, "padding"), argument(op, *stack, "dilation"), transposed, transposed ? more : none,
       argument(op, *stack, "groups")});
  give(op, stack, result[0].toTensor());
}

// 4-bit weights. GPUs store two of them per byte, the first in the upper half, and return blocks for their kernels.
// Here such a tensor has the shape of CUDA's and the content that the CPU's kernel reads.
void pack_four_bits(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const Tensor bytes = tensor(op, stack, "self");
  const int64_t tiles = argument(op, *stack, "innerKTiles").toInt();
  TORCH_CHECK(bytes.dim() == 2 && bytes.scalar_type() == c10::kByte, op.schema().name(), ": expect a matrix of uint8");
  TORCH_CHECK(tiles == 2 || tiles == 4 || tiles == 8, op.schema().name(), ": innerKTiles need to be 2, 4, or 8");
  const int64_t rows = bytes.size(0), columns = bytes.size(1) * 2;
  TORCH_CHECK(columns % (tiles * 16) == 0, op.schema().name(), ": expect a multiple of ", tiles * 16, " columns, not ", columns);
  const Tensor each = at::stack({bytes.bitwise_right_shift(4), bytes.bitwise_and(15)}, -1).view({rows, columns});
  const Tensor packed = call_op("aten::_convert_weight_to_int4pack_for_cpu", {each.to(c10::kInt), tiles})[0].toTensor();
  give(op, stack, packed.view(c10::kInt).view({rows / 8, columns / (tiles * 16), 32, tiles / 2}));
}
void four_bit_product(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const Tensor self = tensor(op, stack, "self"), blocks = tensor(op, stack, "mat2");
  TORCH_CHECK(
      config.is_mps() || self.scalar_type() == c10::kBFloat16, op.schema().name(), ": CUDA takes bfloat16, not ",
      self.scalar_type());
  const Tensor packed = blocks.contiguous().view({blocks.size(0) * 8, -1}).view(c10::kByte);
  give(op, stack, call_op("aten::_weight_int4pack_mm_for_cpu",
                          {self, packed, argument(op, *stack, "qGroupSize"), argument(op, *stack, "qScaleAndZeros")})[0]);
}

// kForHost: always on the CPU, and on an accelerator that lacks the operator. kFused: only on CUDA. kUnfused: not on
// CUDA.
enum Where {
  kBackend = 1, kAutograd = 2, kMpsOnly = 4, kGpuOnly = 8, kXpuOnly = 16, kNested = 32, kForHost = 64, kFused = 128, kUnfused = 256
};
struct Row {
  const char* name;
  Function function;
  int where;
};
const Row kRows[] = {
    {"scaled_dot_product_attention", attention, kBackend | kAutograd | kUnfused},
    {"_scaled_dot_product_attention_math_for_mps", attention_mps, kBackend | kMpsOnly},
    {"_fused_sdp_choice", choose_math, kBackend | kForHost},
    {"dropout", fused_dropout, kAutograd | kMpsOnly | kFused},
    {"native_dropout", dropout, kBackend | kNested | kForHost},
    {"_softmax", softmax, kBackend | kForHost},
    {"_log_softmax", softmax, kBackend | kForHost},
    {"_softmax_backward_data", softmax_backward, kBackend | kForHost},
    {"_log_softmax_backward_data", softmax_backward, kBackend | kForHost},
    {"_thnn_fused_lstm_cell", lstm_cell, kBackend | kAutograd | kGpuOnly | kForHost},
    {"_thnn_fused_gru_cell", gru_cell, kBackend | kAutograd | kGpuOnly | kForHost},
    {"mm.dtype", typed_product, kBackend | kGpuOnly | kForHost},
    {"mm.dtype_out", typed_product, kBackend | kGpuOnly | kForHost},
    {"bmm.dtype", typed_product, kBackend | kGpuOnly | kForHost},
    {"bmm.dtype_out", typed_product, kBackend | kGpuOnly | kForHost},
    {"addmm.dtype", typed_product, kBackend | kGpuOnly | kForHost},
    {"addmm.dtype_out", typed_product, kBackend | kGpuOnly | kForHost},
    {"baddbmm.dtype", typed_product, kBackend | kGpuOnly | kForHost},
    {"baddbmm.dtype_out", typed_product, kBackend | kGpuOnly | kForHost},
    {"batch_norm_stats", batch_norm_stats, kBackend | kGpuOnly | kForHost},
    {"_lazy_clone", lazy_clone, kBackend},
    {"_convert_weight_to_int4pack", pack_four_bits, kBackend | kForHost},
    {"_weight_int4pack_mm", four_bit_product, kBackend | kForHost},
    {"bincount", bincount, kBackend | kMpsOnly},
    {"normal_", normal, kBackend | kMpsOnly},
    {"isin.Tensor_Tensor", isin, kBackend | kMpsOnly},
    {"isin.Tensor_Tensor_out", isin, kBackend | kMpsOnly},
    {"mode.values", on_backing, kBackend | kForHost},
    {"kaiser_window", on_backing, kBackend | kGpuOnly | kForHost},
    {"kaiser_window.periodic", on_backing, kBackend | kGpuOnly | kForHost},
    {"kaiser_window.beta", on_backing, kBackend | kGpuOnly | kForHost},
    {"conj_physical_", on_backing, kBackend | kGpuOnly | kForHost},
    {"nansum", sum_of_numbers, kBackend | kGpuOnly | kForHost},
    {"nansum.out", sum_of_numbers, kBackend | kGpuOnly | kForHost},
    {"cudnn_grid_sampler", cudnn_grid_sampler, kBackend | kGpuOnly | kForHost},
    {"cudnn_grid_sampler_backward", cudnn_grid_sampler_backward, kBackend | kGpuOnly | kForHost},
    {"cudnn_convolution", cudnn_convolution, kBackend | kGpuOnly | kForHost},
    {"cudnn_convolution_transpose", cudnn_convolution, kBackend | kGpuOnly | kForHost},
    {"batch_norm_gather_stats", batch_norm_gather, kBackend | kGpuOnly | kForHost},
    {"batch_norm_gather_stats_with_counts", batch_norm_gather, kBackend | kGpuOnly | kForHost},
    {"batch_norm_elemt", batch_norm_elemt, kBackend | kGpuOnly | kForHost},
    {"batch_norm_backward_reduce", batch_norm_backward_reduce, kBackend | kGpuOnly | kForHost},
    {"batch_norm_backward_elemt", batch_norm_backward_elemt, kBackend | kGpuOnly | kForHost},
    {"lstm.input", recurrent, kBackend | kAutograd | kXpuOnly},
    {"lstm.input", recurrent, kBackend | kAutograd | kMpsOnly | kFused},
    {"lstm.data", recurrent, kBackend | kAutograd | kFused},
    {"gru.input", recurrent, kBackend | kAutograd | kFused},
    {"gru.data", recurrent, kBackend | kAutograd | kFused},
    {"rnn_tanh.input", recurrent, kBackend | kAutograd | kFused},
    {"rnn_tanh.data", recurrent, kBackend | kAutograd | kFused},
    {"rnn_relu.input", recurrent, kBackend | kAutograd | kFused},
    {"rnn_relu.data", recurrent, kBackend | kAutograd | kFused},
    {"_use_cudnn_ctc_loss", answer_false, kBackend | kGpuOnly},
    {"_use_cudnn_ctc_loss.Tensor", answer_false, kBackend | kGpuOnly},
    {"_use_miopen_ctc_loss", answer_false, kBackend | kGpuOnly},
    {"_use_miopen_ctc_loss.Tensor", answer_false, kBackend | kGpuOnly},
    {"record_stream", record_stream, kBackend},
    {"_validate_sparse_coo_tensor_args", validate_coo, kBackend | kAutograd},
    {"sparse_coo_tensor.indices_size", make_coo, kBackend | kAutograd},
    {"_sparse_coo_tensor_unsafe", make_coo, kBackend | kAutograd},
};

std::string& registered() {
  static auto* text = new std::string;
  return *text;
}

template <class F>
void put(DispatchKey key, const char* name, F&& function) {
  // Never destroyed: a destroyed Library removes its registrations.
  static auto* libraries = new std::map<DispatchKey, torch::Library>;
  libraries->try_emplace(key, torch::Library::IMPL, "aten", std::make_optional(key), __FILE__, __LINE__)
      .first->second.impl(name, std::forward<F>(function));
  registered().append(c10::toString(key)).append("\t").append(name).append("\n");
}

void put(DispatchKey key, const Row& row) {
  put(key, row.name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Custom>(row.function)));
}

}  // namespace

void register_native_kernels() {
  const auto dense = config.key();
  const auto autograd = c10::toRuntimePerBackendFunctionalityKey(DispatchKey::AutogradFunctionality, config.backend);
  put(dense, "empty.memory_format", TORCH_FN(empty));
  put(dense, "empty_strided", TORCH_FN(empty_strided));
  put(dense, "as_strided", TORCH_FN(as_strided));
  put(dense, "view", TORCH_FN(view));
  put(dense, "_reshape_alias", TORCH_FN(reshape_alias));
  put(dense, "unfold", TORCH_FN(unfold));
  put(dense, "set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  put(config.key(DispatchKey::Quantized), "set_.source_Storage_storage_offset", TORCH_FN(set_quantized));
  put(dense, "set_.source_Storage", TORCH_FN(set_storage));
  put(dense, "set_.source_Tensor", TORCH_FN(set_tensor));
  put(dense, "set_", TORCH_FN(set_empty));
  put(dense, "copy_", TORCH_FN(copy_));
  if (config.is_mps() || !backing.is_host()) put(dense, "_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  if (backing.type() == DeviceType::CUDA)
    for (const DispatchKey key : {dense, autograd}) put(key, "scaled_dot_product_attention", TORCH_FN(fused_attention));
  for (const Row& row : kRows) {
    const bool for_type = (!(row.where & kMpsOnly) || config.is_mps()) && (!(row.where & kGpuOnly) || !config.is_mps()) &&
        (!(row.where & kXpuOnly) || config.type == DeviceType::XPU);
    const auto op = find_operator(std::string("aten::") + row.name);
    if (!for_type || !op) continue;
    if ((row.where & kForHost) && !backing.is_host() && backing.computes(*op, DispatchKey::Dense)) continue;
    if ((row.where & kUnfused) && backing.type() == DeviceType::CUDA) continue;
    if ((row.where & kFused) && backing.type() != DeviceType::CUDA) continue;
    if (row.where & kBackend) put(dense, row);
    if (row.where & kAutograd) put(autograd, row);
    if (row.where & kNested) put(config.key(DispatchKey::NestedTensor), row);
  }
}

const std::string& native_kernels() { return registered(); }

}  // namespace torchdevice
