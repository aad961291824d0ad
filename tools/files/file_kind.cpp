// SPDX-License-Identifier: Apache-2.0
#include "files/file_kind.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "files/files.hpp"
#include "files/packed_file.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

using planner::text_kind;

std::string_view taken_by(text_kind kind) {
  switch (kind) {
    case text_kind::trace:
      return "give it to --trace";
    case text_kind::profile:
      return "give it to --kineto, together with its --trace";
    case text_kind::graph:
      return "give it to stash plan, as FILE.json";
    case text_kind::plan:
      return "give it to stash verify, explain or report";
    case text_kind::machine:
      return "give it to --machine, as FILE.json";
    default:
      return "unpack it first";
  }
}

text_kind kind_inside(const std::string& path) {
  try {
    const text_kind inside = planner::kind_of(read_packed_file(path));
    return planner::is_packed(inside) ? text_kind::unknown : inside;
  } catch (const error&) {
    return text_kind::unknown;
  }
}

}  // namespace

std::string what_to_do(const std::string& path, std::string_view text, text_kind expected) {
  const text_kind kind = planner::kind_of(text);
  if (kind == text_kind::unknown || kind == expected) return {};
  const text_kind inside = planner::is_packed(kind) ? kind_inside(path) : text_kind::unknown;
  if (inside == text_kind::unknown) return fmt::format(": {}", taken_by(kind));
  const bool read_packed = inside == text_kind::trace || inside == text_kind::profile;
  return fmt::format(" of {}: {}", planner::description(inside), taken_by(read_packed ? inside : kind));
}

void refuse_file(const std::string& name, std::string_view expected) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(name, ignored)) return;
  const std::string text = read_file(name);
  const text_kind kind = planner::kind_of(text);
  throw error(errc::invalid_argument,
              fmt::format("{}, got the file {}{}{}{}", expected, name, kind == text_kind::unknown ? "" : ", ",
                          planner::description(kind), what_to_do(name, text, text_kind::unknown)));
}

}  // namespace stash::tools
