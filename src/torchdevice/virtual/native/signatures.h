// Signatures of operators: short names of C++ types, and the notation of the schema for them.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymIntArrayRef.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace torchdevice::signatures {

using at::Tensor;
using at::IntArrayRef;
using at::OptionalIntArrayRef;
using at::Scalar;
using at::TensorList;
using c10::ScalarType;
using c10::SymInt;
using c10::SymIntArrayRef;
using Text = std::string_view;
using In = const Tensor&;
using Iterated = const at::ITensorListRef&;  // a list, in signatures of structured kernels
using InOut = Tensor&;
using MaybeIn = const std::optional<Tensor>&;
using Number = const Scalar&;
using MaybeNumber = const std::optional<Scalar>&;
using Numbers = at::ArrayRef<Scalar>;
using Tensors = std::vector<Tensor>;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Mask = std::array<bool, 3>;
using FourMask = std::array<bool, 4>;
using MaybeReal = std::optional<double>;

template <class... Each>
struct Types {};

// ------------------------------------------------------------------------------------ a signature in schema notation
template <class T>
inline constexpr const char* kText = nullptr;
template <> inline constexpr const char* kText<In> = "Tensor";
template <> inline constexpr const char* kText<Tensor> = "Tensor";
template <> inline constexpr const char* kText<InOut> = "Tensor!";
template <> inline constexpr const char* kText<MaybeIn> = "Tensor?";
template <> inline constexpr const char* kText<TensorList> = "Tensor[]";
template <> inline constexpr const char* kText<Tensors> = "Tensor[]";
template <> inline constexpr const char* kText<Number> = "Scalar";
template <> inline constexpr const char* kText<MaybeNumber> = "Scalar?";
template <> inline constexpr const char* kText<Numbers> = "Scalar[]";
template <> inline constexpr const char* kText<Iterated> = "Tensor[]";
template <> inline constexpr const char* kText<int64_t> = "int";
template <> inline constexpr const char* kText<std::optional<int64_t>> = "int?";
template <> inline constexpr const char* kText<IntArrayRef> = "int[]";
template <> inline constexpr const char* kText<OptionalIntArrayRef> = "int[]?";
template <> inline constexpr const char* kText<SymInt> = "SymInt";
template <> inline constexpr const char* kText<SymIntArrayRef> = "SymInt[]";
template <> inline constexpr const char* kText<at::OptionalSymIntArrayRef> = "SymInt[]?";
template <> inline constexpr const char* kText<double> = "float";
template <> inline constexpr const char* kText<bool> = "bool";
template <> inline constexpr const char* kText<Mask> = "bool[]";
template <> inline constexpr const char* kText<FourMask> = "bool[]";
template <> inline constexpr const char* kText<MaybeReal> = "float?";
template <> inline constexpr const char* kText<ScalarType> = "ScalarType";
template <> inline constexpr const char* kText<std::optional<ScalarType>> = "ScalarType?";
template <> inline constexpr const char* kText<Text> = "str";
template <> inline constexpr const char* kText<std::optional<Text>> = "str?";

template <class T>
struct Results {
  static void append(std::string& text) { text.append(kText<T>).append(","); }
};
template <>
struct Results<void> {
  static void append(std::string&) {}
};
template <class... Each>
struct Results<std::tuple<Each...>> {
  static void append(std::string& text) { (text.append(kText<Each>).append(","), ...); }
};

template <class Signature>
struct Written;
template <class Result, class... Args>
struct Written<Result(Args...)> {
  static std::string text() {
    std::string text;
    (text.append(kText<Args>).append(","), ...);
    text += ">";
    Results<Result>::append(text);
    return text;
  }
};

inline void append(std::string& text, const c10::Argument& a) {
  const std::string type = a.real_type()->str();
  const bool written = a.alias_info() && a.alias_info()->isWrite();
  text.append(type).append(type == "Tensor" && written ? "!," : ",");
}
inline std::string text_of(const c10::FunctionSchema& schema) {
  std::string text;
  for (const auto& a : schema.arguments()) append(text, a);
  text += ">";
  for (const auto& r : schema.returns()) append(text, r);
  return text;
}

}  // namespace torchdevice::signatures
