// Dtypes that GPU kernels support and CPU kernels do not: the CPU computes in a wider dtype.
// tests/virtual/test_dtypes.py compares the table with torch's own database of operators.
#include "relabel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/version.h>

#include <algorithm>

namespace torchdevice {

// The results after the first are statistics. A GPU keeps them in float32 for inputs of half precision.
enum class Statistics { kNone, kMade, kUsed };

struct Wider {
  const char* ops;  // names without overload, in-place or not
  uint64_t from;    // one bit per ScalarType
  Statistics statistics = Statistics::kNone;
};

namespace {

using c10::ScalarType;

template <class... Types>
constexpr uint64_t bits(Types... types) {
  return ((uint64_t(1) << static_cast<int>(types)) | ...);
}
bool has(uint64_t set, ScalarType type) { return (set >> static_cast<int>(type)) & 1; }

constexpr uint64_t kComplexHalf = bits(ScalarType::ComplexHalf), kHalf = bits(ScalarType::Half);
constexpr uint64_t kHalves = kHalf | bits(ScalarType::BFloat16), kBool = bits(ScalarType::Bool);
constexpr uint64_t kIntegers = bits(ScalarType::Byte, ScalarType::Char, ScalarType::Short, ScalarType::Int, ScalarType::Long);
constexpr uint64_t kFloat8 = bits(
    ScalarType::Float8_e4m3fn, ScalarType::Float8_e4m3fnuz, ScalarType::Float8_e5m2, ScalarType::Float8_e5m2fnuz);
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13  // the CPU of 2.9.1 has no trace of halves, that of 2.13 has
constexpr uint64_t kTraced = kComplexHalf | kBool;
#else
constexpr uint64_t kTraced = kComplexHalf | kBool | kHalves;
#endif
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
constexpr uint64_t kTransformed = kComplexHalf | kHalves | bits(ScalarType::BComplex32);
#else
constexpr uint64_t kTransformed = kComplexHalf | kHalf;
#endif

constexpr const char* kTransforms = " _fft_c2c _fft_c2r _fft_r2c ";

const Wider kWider[] = {
    {" acos acosh angle asin asinh atan atanh convolution convolution_backward cos cosh diag diagonal_copy div exp lerp log "
     "logaddexp pow prod rsqrt sigmoid sin sinh sqrt sum tan tanh ",
     kComplexHalf},
    {kTransforms, kTransformed},
    {" polygamma round rrelu_with_noise ", kHalf},
    {" _sparse_sparse_matmul _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward avg_pool3d avg_pool3d_backward "
     "grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward "
     "multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_backward multilabel_margin_loss_forward ",
     kHalves},
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
    {" conj_physical ", bits(ScalarType::BComplex32)},
    {" scatter ", kFloat8},
    {" sparse_sampled_addmm ", kHalves},
#endif
    {" _batch_norm_with_update _native_batch_norm_legit native_batch_norm native_layer_norm ", kHalves, Statistics::kMade},
    {" batch_norm_backward native_batch_norm_backward native_layer_norm_backward ", kHalves, Statistics::kUsed},
    {" abs ", kBool},
    {" trace ", kTraced},
    {" histc ", kIntegers},
};

ScalarType widened(ScalarType type) {
  if (c10::isComplexType(type)) return ScalarType::ComplexFloat;
  if (type == ScalarType::Bool) return ScalarType::Byte;
  return has(kHalves | kFloat8, type) ? ScalarType::Float : ScalarType::Double;
}

// The dtype of the result on a GPU.
ScalarType narrowed(ScalarType type, ScalarType wide, ScalarType narrow) {
  if (type == wide) return narrow;
  if (!c10::isFloatingType(c10::toRealValueType(narrow))) return type;
  if (type == c10::toRealValueType(wide)) return c10::toRealValueType(narrow);
  return c10::isComplexType(type) && type == c10::toComplexType(wide) ? c10::toComplexType(narrow) : type;
}

}  // namespace

const Wider* wider_of(std::string_view name) {
  constexpr std::string_view kNamespace = "aten::";
  if (config.is_mps() || !backing.is_host() || name.substr(0, kNamespace.size()) != kNamespace) return nullptr;
  std::string op(name.substr(kNamespace.size(), name.find('.') - kNamespace.size()));
  if (op.back() == '_') op.pop_back();
  for (const Wider& each : kWider)
    if (std::string_view(each.ops).find(" " + op + " ") != std::string_view::npos) return &each;
  return nullptr;
}

uint64_t dtypes_of_first(const Wider* rule) {
  return rule != nullptr && rule->statistics != Statistics::kNone ? rule->from : 0;
}

uint64_t dtypes_of_any(const Wider* rule) {
  return rule != nullptr && rule->statistics == Statistics::kNone ? rule->from : 0;
}

namespace {

// The dtype of a tensor, or the requested dtype of a result.
std::optional<ScalarType> dtype_of(const c10::IValue& v, const c10::Argument& a) {
  if (v.isTensor() && v.toTensor().defined()) return v.toTensor().scalar_type();
  if (v.isInt() && a.name() == "dtype") return v.toScalarType();
  return std::nullopt;
}

// cuFFT computes in half precision only if the sizes of the signal are powers of two.
void check_signal(const c10::OperatorHandle& op, const Stack& stack) {
  const Tensor signal = argument(op, stack, "self").toTensor();
  const auto dims = argument(op, stack, "dim").toIntVector();
  std::vector<int64_t> sizes;
  for (const int64_t dim : dims) sizes.push_back(signal.size(dim));
  if (const auto last = argument(op, stack, "last_dim_size"); last.isInt() && !sizes.empty()) sizes.back() = last.toInt();
  for (const int64_t size : sizes)
    TORCH_CHECK((size & (size - 1)) == 0,
                "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, but got a "
                "signal size of", c10::IntArrayRef(sizes));
}

}  // namespace

bool run_wider(const Wider& rule, const c10::OperatorHandle& op, Stack* stack, const std::function<void()>& run) {
  const auto& arguments = op.schema().arguments();
  const size_t base = stack->size() - arguments.size();
  // The requested dtype of the computation, or the promoted dtype of the tensors.
  std::optional<ScalarType> asked, promoted, of_numbers;
  for (size_t i = 0; i < arguments.size(); i++) {
    const c10::IValue& v = (*stack)[base + i];
    const auto type = dtype_of(v, arguments[i]);
    if (!type || arguments[i].name() == "index") continue;
    if (!v.isTensor()) {
      asked = type;
    } else if (!is_written(op.schema(), i) || i == 0) {
      auto& into = v.toTensor().dim() ? promoted : of_numbers;
      into = into ? c10::promoteTypes(*into, *type) : *type;
    }
  }
  const bool with_statistics = rule.statistics != Statistics::kNone;
  const auto narrow = with_statistics ? dtype_of((*stack)[base], arguments[0]) : asked ? asked : promoted ? promoted : of_numbers;
  if (!narrow || !has(rule.from, *narrow)) return false;
  if (rule.ops == kTransforms && config.type == DeviceType::CUDA && has(kHalf | kComplexHalf, *narrow)) check_signal(op, *stack);
  const ScalarType wide = widened(*narrow);
  const c10::IValue weight = argument(op, *stack, "weight");
  const bool weight_is_wide = weight.isTensor() && weight.toTensor().defined() && weight.toTensor().scalar_type() == wide;
  const bool rest_is_wide = rule.statistics == Statistics::kMade || (with_statistics && weight_is_wide);
  std::vector<std::pair<Tensor, Tensor>> written;  // the original and its replacement
  for (size_t i = 0; i < arguments.size(); i++) {
    c10::IValue& v = (*stack)[base + i];
    const auto type = dtype_of(v, arguments[i]);
    const bool real = type != narrow && type == c10::toRealValueType(*narrow);  // together with complex numbers
    if (type != narrow && !real) continue;
    const ScalarType wanted = real ? c10::toRealValueType(wide) : wide;
    if (!v.isTensor()) {
      v = wanted;
      continue;
    }
    const Tensor given = v.toTensor();
    v = given.to(wanted);
    if (is_written(op.schema(), i)) written.emplace_back(given, v.toTensor());
  }
  run();
  at::AutoDispatchBelowADInplaceOrView guard;  // autograd has counted the write, if the schema says that there is one
  for (auto& [given, in_place] : written) {
    if (given.sizes() != in_place.sizes()) given.resize_(in_place.sizes());
    given.copy_(in_place);
  }
  const size_t first = stack->size() - op.schema().returns().size();
  for (size_t i = first; i < stack->size(); i++) {
    if (!(*stack)[i].isTensor() || !(*stack)[i].toTensor().defined() || (i > first && rest_is_wide)) continue;
    const Tensor result = (*stack)[i].toTensor();
    const auto place = std::find_if(written.begin(), written.end(), [&](const auto& each) { return each.second.is_same(result); });
    (*stack)[i] = place != written.end() ? place->first : result.to(narrowed(result.scalar_type(), wide, *narrow));
  }
  return true;
}

}  // namespace torchdevice
