// The boxed kernel of (nearly) every operator of a virtual device: checks devices, passes the stand-ins to the kernel
// of the backing, and relabels its results. Also counts and refusals. Graphs are in graphs.cpp.
//
// Random numbers. An operator that takes a generator is called with the inner generator of the virtual device, which is
// separate from that of the CPU. native_dropout, the only operator of torch that draws without a generator argument, is
// in native.cpp. The remaining ones are operators of other libraries with the tag `nondeterministic_seeded`, which use
// the default generator of the backing. On an accelerator this is that of the virtual device. On the CPU it gets the
// state of the virtual device's generator for the duration of the call (`Drawing`). Such calls are serialised, so
// virtual devices do not share numbers. A thread that draws on the CPU during such a call does. If the CPU computes an
// operator that the backing lacks, the generator of the virtual device draws the seed (`compute_on_host`).
#include "fallback.h"
#include "relabel.h"
#include "works.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

namespace torchdevice {

namespace {

// ---------------------------------------------------------------------------------------------- records of operators
struct Records {
  std::mutex mutex;
  std::deque<OpRecord> all;  // a deque: stable addresses
  std::map<std::pair<std::string, DispatchKey>, OpRecord*> by_name;
  std::unordered_map<const c10::FunctionSchema*, std::atomic<OpRecord*>> refused;
};
Records& records() {
  static auto* r = outlives_forks<Records, &records>();
  return *r;
}

// --------------------------------------------------------------------------------------------------------- refusals
[[noreturn]] void refuse(const c10::OperatorHandle& op, OpRecord* record) {
  record->denied++;
  // The messages of the real backends, which programs match.
  TORCH_CHECK_NOT_IMPLEMENTED(
      !config.is_mps(), "The operator '", op.schema().operator_name(),
      "' is not currently implemented for the MPS device. If you want this op to be considered for addition please comment ",
      "on https://github.com/pytorch/pytorch/issues/141287 and mention use-case, that resulted in missing op as well as ",
      "commit hash (virtual device). As a temporary fix, you can set the environment variable ",
      "`PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback for this op. WARNING: this will be slower than running ",
      "natively on MPS.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "Could not run '", op.schema().operator_name(), "' with arguments from the '", config.key(),
      "' backend. The real backend has no such kernel in this version of torch.");
  std::abort();  // unreachable: both checks cover every device type
}

void refuse_dtypes(const c10::OperatorHandle& op, const Stack& stack, size_t base, OpRecord* record) {
  std::optional<c10::ScalarType> first;  // the others are indices, masks, parameters
  bool empty = false;
  for (size_t i = base; i < stack.size(); i++)
    each_tensor(stack[i], [&](const Tensor& t) {
      if (!first) first = t.scalar_type();
      empty |= !t.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && t.numel() == 0;
    });
  if (!first || ((record->denied_dtypes >> static_cast<int>(*first)) & 1) == 0) return;
  if (empty && !record->refusing_kernel.empty()) return;  // CUDA launches no kernel for an empty tensor
  record->denied++;
  if (!record->refusing_kernel.empty())
    TORCH_CHECK_NOT_IMPLEMENTED(false, '"', record->refusing_kernel, "\" not implemented for '", c10::toString(*first), "'");
  TORCH_CHECK(false, "'", op.schema().operator_name(), "' is not implemented for '", *first, "' on the MPS device.");
}

// The error of Metal's average pooling for sizes that do not divide. Forward (input, output size), backward (gradient,
// input).
void refuse_uneven(const Stack& stack, size_t base, OpRecord* record) {
  const bool forward = stack[base + 1].isIntList();
  const auto input = stack[base + (forward ? 0 : 1)].toTensor().sizes().vec();
  const auto output = forward ? stack[base + 1].toIntVector() : stack[base].toTensor().sizes().vec();
  if (input.size() < 2 || output.size() < 2) return;  // the kernel has its own error for that
  const auto uneven = [&](size_t from_end) {
    const int64_t in = input[input.size() - from_end], out = output[output.size() - from_end];
    return in > 0 && out > 0 && std::max(in, out) % std::min(in, out) != 0;
  };
  if (!uneven(1) && !uneven(2)) return;
  record->denied++;
  const bool smaller = input.back() >= output.back();
  TORCH_CHECK(
      false, "Adaptive pool MPS: ", smaller ? "input" : "output", " sizes must be divisible by ",
      smaller ? "output" : "input", " sizes. Non-divisible input sizes are not implemented on MPS device yet. For now, ",
      "you can manually transfer tensor to cpu in this case. Please refer to ",
      "[this issue](https://github.com/pytorch/pytorch/issues/96056)");
}

// Operators whose result the host waits for: torch tags those whose shape or value depends on the data of tensors.
// Indexing waits for masks, which become indices, and for indices on the host.
bool takes_indices(const c10::FunctionSchema& schema) {
  const auto at = schema.argumentIndexWithName("indices");
  return at && schema.arguments()[*at].type()->kind() == c10::TypeKind::ListType;
}
// An operator with a given output size does not wait. A scalar for all elements of a mask needs no indices.
bool waits(const c10::OperatorHandle& op, const Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const size_t base = stack.size() - arguments.size();
  bool masked = false, moved = false, number = false;
  for (size_t i = 0; i < arguments.size(); i++) {
    const c10::IValue& v = stack[base + i];
    if (arguments[i].name() == "output_size" && !v.isNone()) return false;
    if (arguments[i].name() == "values" && v.isTensor()) number = v.toTensor().device().is_cpu() && v.toTensor().numel() == 1;
    if (!v.isOptionalTensorList()) continue;
    for (const auto& t : v.toOptionalTensorVector()) {
      if (!t || !t->defined()) continue;
      masked |= t->scalar_type() == c10::kBool || t->scalar_type() == c10::kByte;
      moved |= t->device().is_cpu();
    }
  }
  return moved || (masked && !number) || !takes_indices(op.schema());
}

std::atomic<int> sync_debug_mode{0};

void warn_fallback(const c10::OperatorHandle& op) {
  TORCH_WARN_ONCE(
      "The operator '", op.schema().operator_name(),
      "' is not currently supported on the MPS backend and will fall back to run on the CPU. ",
      "This may have performance implications.");
}

// ------------------------------------------------------------------------------------------------------- the kernel
c10::IValue enter_value(Call& call, c10::IValue& v, const c10::FunctionSchema& schema, size_t place, uint32_t flags) {
  const c10::Argument& a = schema.arguments()[place];
  if (is_written(schema, place) || (flags & kWritesAll)) flags |= kWritten;
  if (v.isTensor()) return call.enter(v.toTensor(), a.name().c_str(), flags);
  if (v.isTensorList()) {
    c10::List<Tensor> list;
    const auto tensors = v.toListRef();
    list.reserve(tensors.size());
    for (const c10::IValue& t : tensors) list.push_back(call.enter(t.toTensor(), a.name().c_str(), flags));
    return list;
  }
  if (v.isOptionalTensorList()) {
    // Index lists may contain tensors of the host.
    c10::List<std::optional<Tensor>> list;
    for (const auto& t : v.toOptionalTensorVector()) {
      const Device indexed = call.device ? *call.device : Device(c10::kCPU);  // `self` comes first
      TORCH_CHECK(
          a.name() != "indices" || !t || !t->defined() || !is_virtual(*t) || t->device() == indexed,
          "indices should be either on cpu or on the same device as the indexed tensor (", indexed, ")");
      list.push_back(t ? std::optional<Tensor>(call.enter(*t, a.name().c_str(), flags | kAnyDevice)) : std::nullopt);
    }
    return list;
  }
  if (v.isList() && v.toListRef().size() && v.toListRef()[0].isTensorList()) {  // Tensor[][]: collectives
    c10::List<c10::List<Tensor>> outer;
    for (const auto& inner : v.toListRef()) {
      c10::List<Tensor> list;
      for (const Tensor& t : inner.toTensorVector()) list.push_back(call.enter(t, a.name().c_str(), flags));
      outer.push_back(std::move(list));
    }
    return outer;
  }
  return v;
}

void leave_value(Call& call, c10::IValue& v) {
  if (v.isTensor()) {
    v = call.leave(v.toTensor());
  } else if (v.isTensorList()) {
    auto list = v.toTensorList();
    for (size_t i = 0; i < list.size(); i++) {
      const Tensor t = list.extract(i);  // `leave` checks the number of references
      list.set(i, call.leave(t));
    }
  } else if (v.isList() && v.toListRef().size() && v.toListRef()[0].isTensorList()) {
    c10::List<c10::List<Tensor>> outer;
    for (const auto& inner : v.toListRef()) {
      c10::List<Tensor> list;
      for (const Tensor& t : inner.toTensorVector()) list.push_back(call.leave(t));
      outer.push_back(std::move(list));
    }
    v = std::move(outer);
  }
}

// The arguments that can contain a tensor or a device, preceded by the index of the generator.
constexpr uint8_t kNone = 255;
constexpr uint8_t kImplied = 254;  // it draws random numbers without a generator argument

struct Plan {
  const uint8_t *first, *last;
  const uint8_t* begin() const { return first; }
  const uint8_t* end() const { return last; }
};

Plan plan_of(const c10::OperatorHandle& op, OpRecord* record) {
  const auto* plan = record->plan.load(std::memory_order_acquire);
  if (C10_UNLIKELY(!plan)) {
    // Never freed, as its record.
    auto* made = new std::vector<uint8_t>{op.hasTag(at::Tag::nondeterministic_seeded) ? kImplied : kNone};
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); i++) {
      const std::string type = arguments[i].type()->str();
      if (type.find("Generator") != std::string::npos)
        (*made)[0] = static_cast<uint8_t>(i);
      else if (type.find("Tensor") != std::string::npos || type.find("Device") != std::string::npos || type == "t" ||
               type.find("Any") != std::string::npos)
        made->push_back(static_cast<uint8_t>(i));
    }
    record->waits = may_wait(op);
    if (record->plan.compare_exchange_strong(plan, made))
      plan = made;
    else
      delete made;
  }
  return {plan->data() + 1, plan->data() + plan->size()};
}

// The default generator of the backing or of the CPU, used for the virtual device. At the end it gets its state back.
// One thread at a time, so that each restores the state that the program left. The mutexes of the generators are held
// only to read and write a state, because kernels lock them.
class Borrowed {
 public:
  explicit Borrowed(Device from) : alone_(one_at_a_time()), generator_(at::globalContext().defaultGenerator(from)) {
    before_ = state_of(generator_);
  }
  ~Borrowed() { set_state(generator_, before_); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  at::Generator& generator() { return generator_; }

  static Tensor state_of(at::Generator& generator) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    return generator.get_state();
  }
  static void set_state(at::Generator& generator, const Tensor& state) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }

 private:
  // Recursive: a kernel in Python may call another operator that draws.
  static std::recursive_mutex& one_at_a_time() {
    static auto* mutex = new std::recursive_mutex;
    return *mutex;
  }
  std::lock_guard<std::recursive_mutex> alone_;
  at::Generator generator_;
  Tensor before_;
};

// While an object of this class exists, the default generator of the backing continues from the state of the virtual
// device's generator, unless it is that generator.
class Drawing {
 public:
  explicit Drawing(Device device) : ours_(backing_generator(std::nullopt, device)) {
    const Device there = backing.device(device.index());
    if (ours_ == at::globalContext().defaultGenerator(there)) return;
    borrowed_.emplace(there);
    Borrowed::set_state(borrowed_->generator(), Borrowed::state_of(ours_));
  }
  ~Drawing() {
    if (borrowed_) Borrowed::set_state(ours_, Borrowed::state_of(borrowed_->generator()));
  }
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

 private:
  at::Generator ours_;
  std::optional<Borrowed> borrowed_;
};

std::atomic<bool> host_allowed{true};

uint8_t generator_of(const OpRecord* record) { return record->plan.load(std::memory_order_relaxed)->front(); }

// A seed that a generator of the device draws, so that the seed and the state of the device govern what the CPU draws.
uint64_t drawn_seed(const std::optional<at::Generator>& asked, Device device) {
  at::AutoDispatchBelowADInplaceOrView guard;
  Computing here;
  const Tensor drawn = at::empty({2}, at::TensorOptions(backing.device(device.index())).dtype(c10::kLong))
                           .random_(0, int64_t{1} << 31, backing_generator(asked, device))
                           .cpu();
  const auto* halves = drawn.const_data_ptr<int64_t>();
  return static_cast<uint64_t>(halves[0]) << 31 | static_cast<uint64_t>(halves[1]);
}

// The CPU computes an operator that the backing lacks, with copies.
void compute_on_host(const c10::OperatorHandle& op, Stack* stack, OpRecord* record) {
  constexpr bool kRefuseViews = true;  // a copy is no view
  const size_t base = stack->size() - op.schema().arguments().size();
  plan_of(op, record);
  const uint8_t at = generator_of(record);
  if (C10_LIKELY(at == kNone)) return at::native::cpu_fallback(op, stack, kRefuseViews);
  Device device(config.type, current_device());
  for (size_t i = stack->size(); i-- > base;)
    each_tensor((*stack)[i], [&](const Tensor& t) {
      if (is_virtual(t)) device = t.device();
    });
  if (at == kImplied) {
    const uint64_t seed = drawn_seed(std::nullopt, device);
    Borrowed of_host(Device(c10::kCPU));
    {
      std::lock_guard<std::mutex> lock(of_host.generator().mutex());
      of_host.generator().set_current_seed(seed);
    }
    return at::native::cpu_fallback(op, stack, kRefuseViews);
  }
  c10::IValue& generator = (*stack)[base + at];
  generator = at::detail::createCPUGenerator(drawn_seed(generator.toOptional<at::Generator>(), device));
  at::native::cpu_fallback(op, stack, kRefuseViews);
}

[[noreturn]] void report_misfit(const c10::OperatorHandle& op, const Call& call, uint32_t flags) {
  const auto& schema = op.schema();
  // Kernels that do not check devices detect it in the result.
  const auto at = schema.argumentIndexWithName(call.misfit_name);
  TORCH_CHECK(
      !(flags & kNoDeviceCheck) || !at || !schema.arguments()[*at].is_out(), "Expected out tensor to have device ",
      *call.device, ", but got ", call.misfit.device(), " instead");
  std::string method = std::string("wrapper_") + c10::toString(config.key()) + "_" +
      schema.name().substr(schema.name().find("::") + 2) + (schema.overload_name().empty() ? "" : "_" + schema.overload_name());
  c10::impl::common_device_check_failure(*call.device, call.misfit, method.c_str(), call.misfit_name);
  std::abort();  // unreachable: the check raises
}

// A call for another device, which only its generator brought here.
[[noreturn]] void refuse_generator(const at::Generator& asked, const Call& call) {
  const auto expected = call.misfit.defined() ? call.misfit.device().type() : DeviceType::CPU;
  TORCH_CHECK(false, "Expected a '", expected, "' device type for generator but found '", asked.device().type(), "'");
  std::abort();  // unreachable
}

void narrow(c10::IValue& v) {
  const auto fitting = [](const Tensor& t) { return t.to(fallback::dtype_there(t.scalar_type())); };
  if (v.isTensor() && v.toTensor().defined()) {
    v = fitting(v.toTensor());
  } else if (v.isTensorList()) {
    auto list = v.toTensorList();
    for (size_t i = 0; i < list.size(); i++) list.set(i, fitting(list.extract(i)));
  }
}

// The operator by the kernel of the backing, without the refusals of the real device. `narrows`: a dtype that the
// device lacks is replaced by one that it has.
void compute(
    const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack, OpRecord* record, DispatchKey functionality,
    bool narrows = false) {
  const auto& schema = op.schema();
  const auto& arguments = schema.arguments();
  const size_t n = arguments.size(), base = stack->size() - n;
  if (C10_UNLIKELY(record->alert != nullptr) && at::globalContext().deterministicAlgorithms()) alert(*record->alert, op, *stack);

  const Plan plan = plan_of(op, record);
  const bool noting = C10_UNLIKELY(capturing());
  if (C10_UNLIKELY(record->waits.load(std::memory_order_relaxed)) && (noting || sync_debug_mode) && waits(op, *stack)) {
    if (noting) refuse_to_wait();
    about_to_wait();
  }
  c10::IValue first;  // of a collective
  if (C10_UNLIKELY(record->flags & kWritesAll)) first = (*stack)[base];
  Stack before;
  if (noting) {
    before.assign(stack->end() - static_cast<long>(n), stack->end());
    for (size_t i = 0; i < n; i++)
      if (is_written(schema, i)) each_tensor(before[i], capture_touch);
  }

  Call call;
  call.keep_requires_grad = functionality == DispatchKey::SparseCsr;
  for (const uint8_t i : plan) {
    c10::IValue& v = (*stack)[base + i];
    if (v.isTensor() || v.isList()) {
      v = enter_value(call, v, schema, i, record->flags);
    } else if (v.isDevice()) {
      const Device d = v.toDevice();
      if (d.type() == config.type) {
        call.device = resolve(d);
        v = backing.device(call.device->index());
      } else {
        call.to_host = true;
      }
    }
  }
  if (C10_UNLIKELY(call.misfit.defined() && call.device)) report_misfit(op, call, record->flags);
  std::optional<Drawing> drawing;
  if (const uint8_t at = generator_of(record); C10_UNLIKELY(at != kNone)) {
    const Device device = call.device ? *call.device : Device(config.type, current_device());
    if (at == kImplied) {
      drawing.emplace(device);
    } else {
      const auto asked = (*stack)[base + at].toOptional<at::Generator>();
      if (asked && !call.device) refuse_generator(*asked, call);
      if (noting) before[at] = capture_generator(asked, device);
      (*stack)[base + at] = backing_generator(asked, device);
    }
  }
  try {
    at::AutoDispatchBelowADInplaceOrView guard;
    Computing here;
    Allocating there(call.to_host ? std::nullopt : call.device ? call.device : Device(config.type, current_device()));
    op.redispatchBoxed(DispatchKeySet(backing.key(functionality)), stack);
  } catch (const c10::Error& e) {
    raise_if_full(e, call.device ? *call.device : Device(config.type, current_device()));
    throw;
  }
  call.settle();
  const size_t results_from = stack->size() - schema.returns().size();
  for (size_t i = results_from; i < stack->size(); i++) {
    if (narrows) narrow((*stack)[i]);
    leave_value(call, (*stack)[i]);
    if (C10_UNLIKELY(!first.isNone())) give_work_its_results(first, (*stack)[i]);
  }
  if (noting) capture_call(op, keys, std::move(before), *stack, results_from);
}

// If the memory of the device is host memory, operators that it refuses can be computed there.
void compute_refused(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  auto& r = records();
  const auto entry = [&]() -> std::atomic<OpRecord*>& {
    std::lock_guard<std::mutex> lock(r.mutex);
    return r.refused[&op.schema()];  // its address is stable
  };
  std::atomic<OpRecord*>& record = entry();
  if (record == nullptr) record = make_record(toString(op.operator_name()), kDeny | kAnyDevice, 0);
  compute(op, keys, stack, record, DispatchKey::Dense, true);
}

struct BoxedKernel final : c10::OperatorKernel {
  OpRecord* record;
  DispatchKey functionality;
  BoxedKernel(OpRecord* r, DispatchKey f) : record(r), functionality(f) {}
  void operator()(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    run_boxed(op, keys, stack, record, functionality);
  }
};

struct DtypeGuard final : c10::OperatorKernel {
  OpRecord* record;
  explicit DtypeGuard(OpRecord* r) : record(r) {}
  void operator()(const c10::OperatorHandle& op, DispatchKeySet, Stack* stack) {
    refuse_dtypes(op, *stack, stack->size() - op.schema().arguments().size(), record);
    // The autograd key of a backend without its own kernel has the code of a composite.
    op.redispatchBoxed(DispatchKeySet(DispatchKey::AutogradCPU), stack);
  }
};

// For operators that are not registered by name: those of other libraries, and those without a kernel of the backing.
struct BoxedFallback final : c10::OperatorKernel {
  uint32_t flags;
  DispatchKey functionality;
  BoxedFallback(uint32_t f, DispatchKey d) : flags(f), functionality(d) {}
  void operator()(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const uint32_t here = backing.computes(op, functionality) ? flags : flags | kOnHost;
    run_boxed(op, keys, stack, make_record(toString(op.operator_name()), here, 0, functionality), functionality);
  }
};

}  // namespace

bool may_wait(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output) || takes_indices(op.schema());
}

c10::IValue argument(const c10::OperatorHandle& op, const Stack& stack, const char* name) {
  const auto at = op.schema().argumentIndexWithName(name);
  return at ? stack[stack.size() - op.schema().arguments().size() + *at] : c10::IValue();
}

void set_sync_debug_mode(int mode) { sync_debug_mode = mode; }

void about_to_wait() {
  const int mode = sync_debug_mode.load(std::memory_order_relaxed);
  if (C10_LIKELY(mode == 0)) return;
  TORCH_CHECK(mode == 1, "called a synchronizing CUDA operation");
  TORCH_WARN("called a synchronizing CUDA operation");
}

std::optional<c10::OperatorHandle> find_operator(const std::string& name) {
  const auto dot = name.find('.');
  return c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
}

void run_boxed(
    const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack, OpRecord* record, DispatchKey functionality) {
  if (C10_UNLIKELY(record->wider != nullptr) &&
      run_wider(*record->wider, op, stack, [&] { run_boxed(op, keys, stack, record, functionality); }))
    return;
  record->calls.fetch_add(1, std::memory_order_relaxed);
  const size_t base = stack->size() - op.schema().arguments().size();
  if (C10_UNLIKELY(record->flags & kDeny)) refuse(op, record);
  if (C10_UNLIKELY(record->flags & kWarn)) {
    warn_fallback(op);
    // The behavior of a Mac for a dense operator: torch's own fallback, with copies to the CPU and back.
    if (functionality == DispatchKey::Dense) return at::native::cpu_fallback(op, stack);
  }
  if (C10_UNLIKELY(record->flags & kOnHost)) {
    if (!host_allowed) refuse(op, record);
    record->on_host++;
    return compute_on_host(op, stack, record);
  }
  if (C10_UNLIKELY(record->denied_dtypes)) refuse_dtypes(op, *stack, base, record);
  if (C10_UNLIKELY(record->flags & kEvenSizes)) refuse_uneven(*stack, base, record);
  compute(op, keys, stack, record, functionality);
}

void prepare_fallback() {
  if (backing.is_host()) fallback::compute_in_place = &compute_refused;
  fallback::holder = backing.type();
}

void allow_host(bool yes) { host_allowed = yes; }

OpRecord* make_record(std::string name, uint32_t flags, uint64_t denied_dtypes, DispatchKey functionality) {
  auto& r = records();
  std::lock_guard<std::mutex> lock(r.mutex);
  auto& slot = r.by_name[{name, functionality}];
  if (!slot) {
    r.all.emplace_back();
    slot = &r.all.back();
    slot->name = std::move(name);
    slot->alert = alert_of(slot->name);
    slot->wider = wider_of(slot->name);
    slot->flags = slot->name.rfind("c10d::", 0) == 0 ? flags | kWritesAll : flags;
    slot->denied_dtypes = denied_dtypes;
    slot->boxed_dtypes = slot->denied_dtypes | dtypes_of_first(slot->wider);
    slot->widened_dtypes = dtypes_of_any(slot->wider);
  }
  return slot;
}

std::string dump_records() {
  auto& r = records();
  std::lock_guard<std::mutex> lock(r.mutex);
  std::string text;
  for (const auto& record : r.all)
    if (record.calls)
      text += record.name + "\t" + std::to_string(record.calls) + "\t" + std::to_string(record.denied) + "\t" +
          std::to_string(record.on_host) + "\n";
  return text;
}

void reset_records() {
  auto& r = records();
  std::lock_guard<std::mutex> lock(r.mutex);
  for (auto& record : r.all) record.calls = record.denied = record.on_host = 0;
}

c10::BoxedKernel boxed(OpRecord* record) {
  return c10::BoxedKernel::makeFromFunctor(std::make_unique<BoxedKernel>(record, DispatchKey::Dense));
}

torch::CppFunction boxed_kernel(OpRecord* record, DispatchKey functionality) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(record, functionality));
}

torch::CppFunction dtype_guard(OpRecord* record) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<DtypeGuard>(record));
}

torch::CppFunction boxed_fallback(uint32_t flags, DispatchKey functionality) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedFallback>(flags, functionality));
}

}  // namespace torchdevice
