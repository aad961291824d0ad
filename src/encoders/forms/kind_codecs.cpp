// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "encoders/detail.hpp"
#include "encoders/format/codecs.hpp"
#include "encoders/format/kind_codec.hpp"
#include "encoders/format/values.hpp"

namespace stash::encoders {

void clear_padding(std::uint8_t* data, std::size_t used) noexcept {
  std::memset(data + used, 0, pad16(used) - used);
}

void check_underflow_rule(std::string_view function, const encoding& e) {
  if (e.underflow == underflow_rule::to_zero || e.underflow == underflow_rule::keep_nonzero) return;
  fail(errc::invalid_argument, function, "encoding", "a known underflow rule",
       fmt::format("{}", static_cast<unsigned>(e.underflow)));
}

source_types any_type(const encoding&, dtype source) {
  return {size_of(source) != 0, "a known type"};
}

source_types any_float(const encoding&, dtype source) {
  return {is_float(source), "f32, f16 or bf16"};
}

}  // namespace stash::encoders
