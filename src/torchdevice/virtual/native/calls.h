// Functions that all C functions for Python use.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

#define API extern "C" __attribute__((visibility("default")))

namespace torchdevice {

inline thread_local std::string error;  // the message of the last failure on this thread
inline thread_local int error_code = 0;  // its number, if CUDA would raise a torch.AcceleratorError; otherwise 0
constexpr int kOutOfMemory = -1;         // in its place: torch.OutOfMemoryError

// 1: the call failed, and `error` has the message.
template <class F>
int guarded(F f) {
  error_code = 0;
  try {
    f();
    return 0;
  } catch (const c10::AcceleratorError& e) {
    error = e.what_without_backtrace();
    error_code = e.get_error_code();
  } catch (const c10::OutOfMemoryError& e) {
    error = e.what_without_backtrace();
    error_code = kOutOfMemory;
  } catch (const c10::Error& e) {
    error = e.what_without_backtrace();
  } catch (const std::exception& e) {
    error = e.what();
  } catch (...) {
    error = "an unknown C++ exception";
  }
  return 1;
}

struct Quiet final : c10::WarningHandler {  // for a WarningHandlerGuard: drops torch's warnings
  void process(const c10::Warning&) override {}
};

}  // namespace torchdevice
