// SPDX-License-Identifier: Apache-2.0
#include "encoders/message.hpp"

#include <fmt/format.h>

namespace stash {

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t length = most;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0U) == 0x80U)
    --length;
  // What is no UTF-8 is cut where it has to be.
  if (length + 4 < most) length = most;
  return fmt::format("{}... ({} bytes)", text.substr(0, length), text.size());
}

}  // namespace stash
