// SPDX-License-Identifier: Apache-2.0
#include "encoders/public_call.hpp"

#include <cfenv>
#include <new>

#include <fmt/format.h>

#include "stash/error.hpp"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace stash::encoders {
namespace {

std::string no_memory_text(std::string_view function) {
  return fmt::format("{}: memory: expected enough for the call, got none", function);
}

/// A copy of it takes no memory.
const error& no_memory() {
  static const error one(errc::out_of_memory, no_memory_text("stash"));
  return one;
}

/// Made when the library is loaded, while there is memory.
[[maybe_unused]] const error& made_early = no_memory();

bool rounds_to_nearest() noexcept {
#if defined(__x86_64__)
  // fegetround() would look at the mode of another unit, which is for long double: nothing here computes with
  // it.
  return _MM_GET_ROUNDING_MODE() == _MM_ROUND_NEAREST;
#else
#if defined(__SSE2__)
  if (_MM_GET_ROUNDING_MODE() != _MM_ROUND_NEAREST) return false;
#endif
  return std::fegetround() == FE_TONEAREST;
#endif
}

class restored_mode {
 public:
  restored_mode() noexcept { std::fegetenv(&before_); }
  ~restored_mode() { std::fesetenv(&before_); }
  restored_mode(const restored_mode&) = delete;
  restored_mode& operator=(const restored_mode&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace

void rethrow(std::string_view function) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    // Said below, outside of its handler.
  }
  std::optional<error> named;
  try {
    named.emplace(errc::out_of_memory, no_memory_text(function));
  } catch (const std::bad_alloc&) {
    throw error(no_memory());
  }
  throw error(*named);
}

void call_in_default_rounding(void (*body)(void* state), void* state) {
  if (rounds_to_nearest()) return body(state);
  const restored_mode mode;
  std::fesetround(FE_TONEAREST);
  body(state);
}

void call_in_default_arithmetic(void (*body)(void* state), void* state) {
  const restored_mode mode;
  std::fesetenv(FE_DFL_ENV);  // where processors have modes for denormals, C libraries set these as well
  body(state);
}

}  // namespace stash::encoders
