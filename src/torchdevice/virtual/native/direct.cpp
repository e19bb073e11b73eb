// Kernels with a signature, for the operators that programs call most. A boxed kernel copies its arguments to a stack
// and back; these do not. They accept only arguments that `Loans` supports, and pass all other calls to the boxed
// kernel.
//
// The schema decides which operators have one: `Signatures` lists the signatures of frequent operators of training and
// inference. Every other operator with such a signature is covered too.
#include "relabel.h"
#include "signatures.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/boxing/impl/boxing.h>

#include <algorithm>
#include <unordered_map>

namespace torchdevice {

namespace {

using namespace signatures;
using Attended = std::tuple<Tensor, Tensor, Tensor, Tensor, SymInt, SymInt, Tensor, Tensor, Tensor>;

using Signatures = Types<
    // elementwise
    Tensor(In), InOut(InOut), Tensor(In, In), InOut(InOut, In), Tensor(In, Number), InOut(InOut, Number),
    Tensor(In, In, Number), InOut(InOut, In, Number), Tensor(In, In, In), InOut(InOut, In, In), Tensor(In, In, In, Number),
    InOut(InOut, In, In, Number), Tensor(In, Number, Number), Tensor(In, MaybeNumber, MaybeNumber),
    InOut(InOut, MaybeNumber, MaybeNumber), Tensor(In, Text), Tensor(In, In, Text), Tensor(In, In, std::optional<Text>),
    // products
    Tensor(In, In, In, Number, Number), InOut(InOut, In, In, Number, Number),
    // reductions, and operators along a dimension
    Tensor(In, std::optional<ScalarType>), Tensor(In, OptionalIntArrayRef, bool, std::optional<ScalarType>),
    Tensor(In, IntArrayRef, bool), Tensor(In, std::optional<int64_t>, bool), Tensor(In, int64_t, bool), Two(In, int64_t, bool),
    Tensor(In, In, int64_t, ScalarType), Tensor(In, int64_t, std::optional<ScalarType>), Tensor(In, int64_t),
    // indices
    Tensor(In, int64_t, In), Tensor(In, int64_t, In, bool), Tensor(In, In, SymInt, SymInt, bool),
    Tensor(Iterated, int64_t),
    // convolution
    Tensor(In, In, MaybeIn, SymIntArrayRef, SymIntArrayRef, SymIntArrayRef, bool, SymIntArrayRef, SymInt, bool, bool, bool, bool),
    Three(In, In, In, at::OptionalSymIntArrayRef, SymIntArrayRef, SymIntArrayRef, SymIntArrayRef, bool, SymIntArrayRef, SymInt,
          Mask),
    // attention
    Attended(In, In, In, double, bool, bool, MaybeReal), Attended(In, In, In, MaybeIn, bool, double, bool, bool, MaybeReal),
    Four(In, In, In, MaybeIn, bool, double, bool, MaybeReal),
    Three(In, In, In, In, In, In, In, In, SymInt, SymInt, double, bool, In, In, MaybeReal),
    Three(In, In, In, In, In, In, In, In, In, In, In, SymInt, SymInt, double, bool, MaybeReal),
    Four(In, In, In, In, In, In, In, In, In, double, FourMask, bool, MaybeReal),
    // losses
    Tensor(In, In, int64_t), Tensor(In, In, In, int64_t), Two(In, In, MaybeIn, int64_t, SymInt),
    Tensor(In, In, In, MaybeIn, int64_t, SymInt, In),
    // norms
    Three(In, SymIntArrayRef, MaybeIn, MaybeIn, double), Three(In, In, SymIntArrayRef, In, In, MaybeIn, MaybeIn, Mask),
    Three(In, MaybeIn, MaybeIn, MaybeIn, MaybeIn, bool, double, double),
    Three(In, In, MaybeIn, MaybeIn, MaybeIn, MaybeIn, MaybeIn, bool, double, Mask),
    Four(In, In, MaybeIn, MaybeIn, MaybeIn, bool, double, double),
    Three(In, MaybeIn, MaybeIn, SymInt, SymInt, SymInt, int64_t, double),
    Three(In, In, In, In, MaybeIn, SymInt, SymInt, SymInt, int64_t, Mask),
    // pooling
    Two(In, IntArrayRef, IntArrayRef, IntArrayRef, IntArrayRef, bool),
    Tensor(In, In, IntArrayRef, IntArrayRef, IntArrayRef, IntArrayRef, bool, In), Tensor(In, SymIntArrayRef),
    // optimizers, which call an operator once for all parameters
    void(TensorList), void(TensorList, Number), void(TensorList, Numbers), void(TensorList, In), void(TensorList, TensorList),
    void(TensorList, TensorList, bool), void(TensorList, TensorList, Number), void(TensorList, TensorList, TensorList, Number),
    void(TensorList, TensorList, TensorList, Numbers), void(TensorList, InOut, In), Tensors(TensorList),
    Tensors(TensorList, Number), Tensors(TensorList, Numbers), Tensors(TensorList, In), Tensors(TensorList, TensorList),
    Tensors(TensorList, TensorList, Number), Tensors(TensorList, TensorList, TensorList, Number),
    Tensors(TensorList, Number, std::optional<ScalarType>),
    void(TensorList, TensorList, TensorList, TensorList, TensorList, TensorList, double, double, double, double, double, bool,
         bool, MaybeIn, MaybeIn),
    void(TensorList, TensorList, TensorList, TensorList, TensorList, TensorList, In, double, double, double, double, bool, bool,
         MaybeIn, MaybeIn),
    void(TensorList, TensorList, TensorList, double, double, double, double, bool, bool, bool, MaybeIn, MaybeIn)>;

// --------------------------------------------------------------------------------------------- arguments
// The form in which an argument is passed to the backing. `ready`: it could be lent.
template <class T>
struct Handed {
  T value;
  Handed(Loans&, T given, bool) : value(std::forward<T>(given)) {}
  bool ready() const { return true; }
  T get() { return std::forward<T>(value); }
};
template <>
struct Handed<In> {
  const Tensor* found;
  Handed(Loans& loans, const Tensor& given, bool written) : found(loans.take(given, written)) {}
  bool ready() const { return found; }
  const Tensor& get() { return *found; }
};
template <>
struct Handed<InOut> {
  const Tensor* found;
  Handed(Loans& loans, const Tensor& given, bool) : found(loans.take(given, true)) {}
  bool ready() const { return found; }
  Tensor& get() { return const_cast<Tensor&>(*found); }
};
template <>
struct Handed<MaybeIn> {
  bool found = true;
  std::optional<Tensor> value;
  Handed(Loans& loans, const std::optional<Tensor>& given, bool written) {
    if (!given) return;
    const Tensor* taken = loans.take(*given, written);
    found = taken;
    if (taken) value = *taken;
  }
  bool ready() const { return found; }
  const std::optional<Tensor>& get() { return value; }
};
template <>
struct Handed<TensorList> {
  std::optional<TensorList> found;
  Handed(Loans& loans, TensorList given, bool written) : found(loans.take(given, written)) {}
  bool ready() const { return found.has_value(); }
  TensorList get() { return *found; }
};

template <>
struct Handed<Iterated> {
  std::optional<TensorList> found;
  std::optional<at::ITensorListRef> list;
  Handed(Loans& loans, Iterated given, bool written) {
    const auto held = given.materialize();
    std::vector<Tensor> tensors(held.begin(), held.end());
    found = loans.take(tensors, written);
    if (found) list.emplace(*found);
  }
  bool ready() const { return list.has_value(); }
  Iterated get() { return *list; }
};

inline void expect_all(const Tensor& t) { expect(t); }
inline void expect_all(TensorList list) {
  for (const Tensor& t : list) expect(t);
}
template <class Other>
void expect_all(const Other&) {}

// Whether the dtype of an argument is in a set. A rule of dtypes.cpp applies to the promoted dtype of all arguments: that
// is in the set only if the dtype of one of them is.
inline bool has_one_of(ScalarType type, uint64_t dtypes) { return (dtypes >> static_cast<int>(type)) & 1; }
inline bool has_one_of(const std::optional<ScalarType>& type, uint64_t dtypes) { return type && has_one_of(*type, dtypes); }
inline bool has_one_of(const Tensor& t, uint64_t dtypes) { return t.defined() && has_one_of(t.scalar_type(), dtypes); }
inline bool has_one_of(const std::optional<Tensor>& t, uint64_t dtypes) { return t && has_one_of(*t, dtypes); }
inline bool has_one_of(TensorList list, uint64_t dtypes) {
  return std::any_of(list.begin(), list.end(), [&](const Tensor& t) { return has_one_of(t, dtypes); });
}
template <class Other>
bool has_one_of(const Other&, uint64_t) {
  return false;
}

template <class... Rest>
Tensor& first(Tensor& self, Rest&&...) {
  return self;
}

// ----------------------------------------------------------------------------------------------------------- a kernel
constexpr uint32_t kWelcome = kNoDeviceCheck | kAnyDevice;  // scalars of the host

template <class Signature>
class Direct;

template <class Result, class... Args>
class Direct<Result(Args...)> {
 public:
  Direct(const c10::OperatorHandle& op, OpRecord* record)
      : op_(op.typed<Result(Args...)>()),
        record_(record),
        numbers_welcome_(record->flags & kWelcome),
        boxed_(boxed(record)) {
    for (size_t i = 0; i < sizeof...(Args); i++) written_[i] = is_written(op.schema(), i);
  }

  Result run(DispatchKeySet keys, Args... args) const {
    return run(std::index_sequence_for<Args...>(), keys, std::forward<Args>(args)...);
  }

 private:
  template <size_t... I>
  Result run(std::index_sequence<I...>, DispatchKeySet keys, Args... args) const {
    const bool boxed = capturing() || (record_->boxed_dtypes && is_boxed(args...)) ||
        (record_->widened_dtypes && (has_one_of(args, record_->widened_dtypes) || ...));
    if (C10_LIKELY(!boxed)) {
      (expect_all(args), ...);
      Loans loans(numbers_welcome_);
      std::tuple<Handed<Args>...> handed{Handed<Args>(loans, args, written_[I])...};
      if (C10_LIKELY((std::get<I>(handed).ready() && ...) && loans.device())) {
        record_->calls.fetch_add(1, std::memory_order_relaxed);
        const auto compute = [&]() -> Result {
          at::AutoDispatchBelowADInplaceOrView guard;
          Computing here;
          Allocating there(loans.device());
          return op_.redispatch(backing.dense_keys(), std::get<I>(handed).get()...);
        };
        try {
          if constexpr (std::is_void_v<Result>) {
            compute();
            return loans.check_written();
          } else if constexpr (std::is_reference_v<Result>) {
            compute();
            loans.check_written();
            return first(args...);
          } else {
            return leave(loans, compute());
          }
        } catch (const c10::Error& e) {
          raise_if_full(e, *loans.device());
          throw;
        }
      }
    }
    return c10::impl::BoxedKernelWrapper<Result(Args...)>::call(boxed_, op_, keys, std::forward<Args>(args)...);
  }

  // Whether the boxed kernel refuses or converts the dtype.
  template <class First, class... Rest>
  bool is_boxed(const First& first, const Rest&...) const {
    if constexpr (std::is_same_v<First, Tensor>)
      return (record_->boxed_dtypes >> static_cast<int>(first.scalar_type())) & 1;
    else
      return true;
  }

  static Tensor leave(Loans& loans, Tensor&& result) { return loans.leave(std::move(result)); }
  static Tensors leave(Loans& loans, Tensors&& results) {
    for (Tensor& each : results) each = loans.leave(std::move(each));
    return std::move(results);
  }
  template <class... Each>
  static std::tuple<Each...> leave(Loans& loans, std::tuple<Each...>&& results) {
    std::apply([&](auto&... each) { (leave_in_place(loans, each), ...); }, results);
    return std::move(results);
  }
  static void leave_in_place(Loans& loans, Tensor& result) { result = loans.leave(std::move(result)); }
  static void leave_in_place(Loans&, SymInt&) {}

  const c10::TypedOperatorHandle<Result(Args...)> op_;
  OpRecord* const record_;
  const bool numbers_welcome_;
  const c10::BoxedKernel boxed_;
  std::array<bool, sizeof...(Args)> written_;
};

using Make = std::optional<torch::CppFunction> (*)(const c10::OperatorHandle&, OpRecord*);

template <class Signature>
struct Maker;
template <class Result, class... Args>
struct Maker<Result(Args...)> {
  static std::optional<torch::CppFunction> make(const c10::OperatorHandle& op, OpRecord* record) {
    const Direct<Result(Args...)>* kernel;  // never freed, as its record
    try {
      kernel = new Direct<Result(Args...)>(op, record);
    } catch (const c10::Error&) {
      return std::nullopt;  // torch passes the arguments in another form than its schema suggests
    }
    return torch::CppFunction(
        [kernel](DispatchKeySet keys, Args... args) -> Result { return kernel->run(keys, std::forward<Args>(args)...); });
  }
};

using Makers = std::unordered_map<std::string, Make>;

template <class... Each>
Makers makers_of(Types<Each...>) {
  return {{Written<Each>::text(), &Maker<Each>::make}...};
}

// Whether the generator of the backing differs from that of the virtual device.
bool draws_need_care() { return backing.is_host() || backing.is_shared(static_cast<DeviceIndex>(config.count - 1)); }

// Whether results are new, and arguments keep their geometry.
bool is_simple(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const auto is_out = [](const c10::Argument& a) { return a.is_out(); };
  const auto is_view = [](const c10::Argument& a) { return a.alias_info() && !a.alias_info()->isWrite(); };
  return std::none_of(schema.arguments().begin(), schema.arguments().end(), is_out) &&
      std::none_of(schema.returns().begin(), schema.returns().end(), is_view) && !op.hasTag(at::Tag::inplace_view) &&
      !(op.hasTag(at::Tag::nondeterministic_seeded) && draws_need_care());
}

}  // namespace

std::optional<torch::CppFunction> direct_kernel(const c10::OperatorHandle& op, OpRecord* record) {
  static const auto* makers = new Makers(makers_of(Signatures()));
  if ((record->flags & ~kWelcome) || record->alert || may_wait(op) || !is_simple(op)) return std::nullopt;
  const auto found = makers->find(text_of(op.schema()));
  return found == makers->end() ? std::nullopt : found->second(op, record);
}

}  // namespace torchdevice
