// SPDX-License-Identifier: Apache-2.0
#include "report/utf8.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace stash::tools {

std::string valid_utf8(std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (plain) return std::string(text);
  using nlohmann::json;
  const json quoted = std::string(text);
  return json::parse(quoted.dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

}  // namespace stash::tools
