// SPDX-License-Identifier: Apache-2.0
#include "c_api/structs.hpp"

#include <fmt/format.h>

namespace stash::c_api {

void refuse(std::string_view function, const argument_name& argument, std::string_view expected,
            std::string_view got) {
  throw error(errc::invalid_argument,
              fmt::format("{}: {}{}{}: expected {}, got {}", function, argument.argument,
                          argument.member.empty() ? "" : ".", argument.member, expected, got));
}

std::size_t checked_size(std::string_view function, const argument_name& argument, const void* data,
                         std::size_t first) {
  if (data == nullptr) refuse(function, argument, "a structure", "null");
  std::size_t size = 0;
  std::memcpy(&size, data, sizeof(size));
  // Nobody's structure will have a megabyte: what says so was not initialised, and is not looked at further.
  constexpr std::size_t most = std::size_t{1} << 20;
  if (size < first || size > most) {
    refuse(function, argument, fmt::format("struct_size of {} to {} (see STASH_INIT)", first, most),
           fmt::format("{}", size));
  }
  return size;
}

void check_unknown(std::string_view function, const argument_name& argument, const void* data,
                   std::size_t known, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t i = known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    refuse(function, argument, "zero in the members that this version of the library does not have",
           fmt::format("{} at byte {}", bytes[i], i));
  }
}

void check_reserved(std::string_view function, const argument_name& argument, std::string_view member,
                    std::int64_t value) {
  if (value == 0) return;
  const std::string path =
      argument.member.empty() ? std::string(member) : fmt::format("{}.{}", argument.member, member);
  refuse(function, {argument.argument, path}, "0", fmt::format("{}", value));
}

}  // namespace stash::c_api
