// Operators of a device whose kernel refuses some dtypes or sizes: a kernel in front of the device's own.
//
// The device's kernel is called at once. If it refuses a call, the kernel in Python (fallback/kernels.py) computes it.
// From then on calls with these dtypes go to Python first, which remembers what was refused. For frequent signatures
// the arguments are passed on as they are; for others on a stack.
#include "calls.h"
#include "fallback.h"
#include "signatures.h"

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/boxing/impl/boxing.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#endif

namespace torchdevice::fallback {

namespace {

#ifdef TORCH_VERSION_MINOR
constexpr bool kKnownTorch = TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR <= 15;
#else
constexpr bool kKnownTorch = false;
#endif

using namespace signatures;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::KernelFunction;
using Stack = torch::jit::Stack;

// Asks Python whether an error is a refusal. The class is 0 for RuntimeError, 1 for NotImplementedError, 2 for
// TypeError; other errors are never refusals.
using IsRefusal = int (*)(const char* message, int error_class);
IsRefusal is_refusal = nullptr;

bool is_refused(const c10::Error& error) {
  const auto& thrown = typeid(error);
  const int error_class = thrown == typeid(c10::Error) ? 0
      : thrown == typeid(c10::NotImplementedError)     ? 1
      : thrown == typeid(c10::TypeError)               ? 2
                                                       : -1;
  return error_class >= 0 && is_refusal(error.what_without_backtrace(), error_class) != 0;
}

// ------------------------------------------------------------------------------------------- the dtypes of a call
// One bit per dtype among its arguments.
[[maybe_unused]] uint64_t dtypes(const Tensor& t) { return t.defined() ? uint64_t(1) << static_cast<int>(t.scalar_type()) : 0; }
[[maybe_unused]] uint64_t dtypes(const std::optional<Tensor>& t) { return t ? dtypes(*t) : 0; }
template <class Other>
uint64_t dtypes(const Other&) {
  return 0;
}

// Dtypes with which the kernel refused a call.
class Refused {
 public:
  bool contains(uint64_t dtypes) const {
    const size_t count = count_.load(std::memory_order_acquire);
    if (C10_LIKELY(count == 0)) return false;
    if (count > all_.size()) return true;
    for (size_t i = 0; i < count; i++)
      if (all_[i].load(std::memory_order_relaxed) == dtypes) return true;
    return false;
  }
  // Called while `error` is handled. Raises it again if it is not a refusal.
  void learn(const std::exception& error, uint64_t dtypes, bool from_boxed) {
    if (const auto* of_torch = dynamic_cast<const c10::Error*>(&error)) {
      if (!is_refused(*of_torch)) throw;
      add(dtypes);
    } else {
      if (!from_boxed) throw;
      // An error of Python, in which the device's kernel is written. The guard in Python can tell what it means.
      count_.store(all_.size() + 1, std::memory_order_release);
    }
  }

 private:
  void add(uint64_t dtypes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (contains(dtypes)) return;
    const size_t count = count_.load(std::memory_order_relaxed);
    if (count < all_.size()) all_[count].store(dtypes, std::memory_order_relaxed);
    count_.store(count + 1, std::memory_order_release);  // after the last place, every call goes to Python
  }

  std::mutex mutex_;
  std::array<std::atomic<uint64_t>, 16> all_{};
  std::atomic<size_t> count_{0};
};

// --------------------------------------------------------------------------------------------- the two kernels
template <class Kernel>
struct Guarded {
  Kernel native;  // of the device
  Kernel python;  // for what it refuses
  Refused refused;
  Guarded(Kernel of_device, Kernel of_python) : native(std::move(of_device)), python(std::move(of_python)) {}
};

template <class Kernel>
struct BoxedGuard final : c10::OperatorKernel {
  std::shared_ptr<Guarded<Kernel>> of;
  explicit BoxedGuard(std::shared_ptr<Guarded<Kernel>> guarded) : of(std::move(guarded)) {}

  void operator()(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const auto base = static_cast<long>(stack->size() - op.schema().arguments().size());
    const Stack given(stack->begin() + base, stack->end());
    uint64_t seen = 0;
    for (const auto& each : given)
      if (each.isTensor()) seen |= dtypes(each.toTensor());
    if (C10_LIKELY(!of->refused.contains(seen))) {
      try {
        return of->native.callBoxed(op, keys, stack);
      } catch (const std::exception& error) {
        of->refused.learn(error, seen, true);
      }
      stack->resize(static_cast<size_t>(base));  // the kernel may have taken arguments off
      stack->insert(stack->end(), given.begin(), given.end());
    }
    of->python.callBoxed(op, keys, stack);
  }
};

// The kernel that torch keeps in its handle: its first member in the torch versions that were looked at. torch offers
// only a call with a stack.
template <class Kernel>
constexpr bool holds_kernel_first = kKnownTorch && sizeof(Kernel) ==
    sizeof(KernelFunction) + sizeof(std::shared_ptr<int>) + sizeof(std::string) + sizeof(std::shared_ptr<c10::OperatorHandle>);
template <class Kernel>
const KernelFunction& inside(const Kernel& handle) {
  return reinterpret_cast<const KernelFunction&>(handle);
}

[[maybe_unused]] bool is_boxed(const KernelFunction& kernel) { return !kernel.isValidUnboxed() && !kernel.isValidSymUnboxed(); }

template <class Signature, class Kernel>
struct TypedGuard;
template <class Result, class... Args, class Kernel>
struct TypedGuard<Result(Args...), Kernel> {
  static std::optional<KernelFunction> make(const c10::OperatorHandle& op, const std::shared_ptr<Guarded<Kernel>>& of) {
    try {
      (void)op.typed<Result(Args...)>();
    } catch (const c10::Error&) {
      return std::nullopt;  // torch passes the arguments in another form than its schema suggests
    }
    return KernelFunction::makeFromUnboxedLambda([op, of](DispatchKeySet keys, Args... args) -> Result {
      const uint64_t seen = (uint64_t(0) | ... | dtypes(args));
      if (C10_LIKELY(!of->refused.contains(seen))) {
        try {
          return inside(of->native).template call<Result, Args...>(op, keys, args...);
        } catch (const std::exception& error) {
          of->refused.learn(error, seen, is_boxed(inside(of->native)));
        }
      }
      return inside(of->python).template call<Result, Args...>(op, keys, std::forward<Args>(args)...);
    });
  }
};

using Signatures = Types<
    Tensor(In), Tensor(In, In), Tensor(In, In, MaybeIn), Tensor(In, Number), Tensor(Number, In), Tensor(In, Number, Number),
    Tensor(In, int64_t), Tensor(In, int64_t, In, bool), Tensor(In, In, int64_t),
    Tensor(In, In, int64_t, double), Tensor(In, In, MaybeIn, int64_t, SymInt), Tensor(In, MaybeIn, SymInt),
    Tensor(
        In, In, MaybeIn, SymIntArrayRef, SymIntArrayRef, SymIntArrayRef, bool, SymIntArrayRef, SymInt, bool, bool, bool, bool),
    // pooling and resizing
    Two(In, IntArrayRef), Tensor(In, SymIntArrayRef), Tensor(In, In, SymIntArrayRef),
    Tensor(In, IntArrayRef, IntArrayRef, IntArrayRef, IntArrayRef, bool),
    Tensor(In, IntArrayRef, IntArrayRef, IntArrayRef, bool, bool, std::optional<int64_t>),
    Tensor(In, In, SymIntArrayRef, IntArrayRef, IntArrayRef),
    Tensor(In, In, IntArrayRef, IntArrayRef, IntArrayRef, IntArrayRef, bool, In),
    Tensor(In, SymIntArrayRef, bool, MaybeReal, MaybeReal)>;

template <class Kernel>
using Make = std::optional<KernelFunction> (*)(const c10::OperatorHandle&, const std::shared_ptr<Guarded<Kernel>>&);

template <class Kernel, class... Each>
std::unordered_map<std::string, Make<Kernel>> makers_of(Types<Each...>) {
  return {{Written<Each>::text(), &TypedGuard<Each, Kernel>::make}...};
}

template <class Kernel>
KernelFunction kernel_of(const c10::OperatorHandle& op, std::shared_ptr<Guarded<Kernel>> of) {
  if constexpr (holds_kernel_first<Kernel>) {
    static const auto* makers = new std::unordered_map<std::string, Make<Kernel>>(makers_of<Kernel>(Signatures()));
    if (const auto found = makers->find(text_of(op.schema())); found != makers->end())
      if (auto made = found->second(op, of)) return std::move(*made);
  }
  return KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedGuard<Kernel>>(std::move(of)));
}

// --------------------------------------------------------------------------------------------------- registration
// A dispatch slot whose kernel of the device is kept until the one in Python is registered.
template <class Handle>
struct Slots {
  using Kernel = decltype(std::declval<Handle>().getComputedKernelForDispatchKey(DispatchKey::CPU));
  static std::map<std::pair<std::string, DispatchKey>, Kernel>& kept() {
    static auto* all = new std::map<std::pair<std::string, DispatchKey>, Kernel>;
    return *all;
  }
};

std::vector<c10::RegistrationHandleRAII>& registrations() {
  static auto* all = new std::vector<c10::RegistrationHandleRAII>;
  return *all;
}

template <class Handle>
void keep(const Handle& op, DispatchKey key) {
  if constexpr (tells_below<Handle>)
    Slots<Handle>::kept().insert_or_assign({toString(op.operator_name()), key}, op.getComputedKernelForDispatchKey(key));
}

template <class Handle>
void guard(const Handle& op, DispatchKey key) {
  if constexpr (tells_below<Handle>) {
    using Kernel = typename Slots<Handle>::Kernel;
    auto kept = Slots<Handle>::kept().extract({toString(op.operator_name()), key});
    TORCH_CHECK(!kept.empty(), "the kernel of ", op.operator_name(), " was not kept");
    auto of = std::make_shared<Guarded<Kernel>>(std::move(kept.mapped()), op.getComputedKernelForDispatchKey(key));
    Quiet quiet;  // torch warns if a kernel is overridden
    c10::WarningUtils::WarningHandlerGuard silence(&quiet);
    registrations().push_back(c10::Dispatcher::singleton().registerImpl(
        op.operator_name(), key, kernel_of<Kernel>(op, std::move(of)), std::nullopt, nullptr,
        "torchdevice: the device first, then the CPU"));
  }
}

}  // namespace

}  // namespace torchdevice::fallback

using namespace torchdevice::fallback;
using torchdevice::guarded;

// `asked` is Python's answer to whether an error is a refusal.
API void tdf_ask(void* asked) { is_refusal = reinterpret_cast<IsRefusal>(asked); }

// Keeps the device's kernel of an operator. After that, Python registers its kernel, then calls tdf_guard.
API int tdf_keep(const char* name, const char* overload, const char* key) {
  return guarded([&] {
    keep(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), c10::parseDispatchKey(key));
  });
}

API int tdf_guard(const char* name, const char* overload, const char* key) {
  return guarded([&] {
    guard(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), c10::parseDispatchKey(key));
  });
}

API int tdf_end_guards() {
  return guarded([&] { registrations().clear(); });
}
