// SPDX-License-Identifier: Apache-2.0
#include "planner/json/text_kind.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "planner/json/lenient_json.hpp"

namespace stash::planner {
namespace {

using token = lenient_json::kind;

text_kind packing_of(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, text_kind>, 5> beginnings{{
      {"\x1F\x8B", text_kind::gz},
      {"PK\x03\x04", text_kind::zip},
      {"BZh", text_kind::bzip2},
      {"\xFD"
       "7zXZ",
       text_kind::xz},
      {"\x28\xB5\x2F\xFD", text_kind::zstd},
  }};
  for (const auto& [beginning, packing] : beginnings) {
    if (text.starts_with(beginning)) return packing;
  }
  constexpr std::size_t magic_of_tar = 257;
  if (text.size() > magic_of_tar && text.substr(magic_of_tar).starts_with("ustar")) return text_kind::tar;
  return text_kind::unknown;
}

text_kind kind_of_format(std::string_view format) {
  if (format == "stash.graph") return text_kind::graph;
  if (format == "stash.plan") return text_kind::plan;
  if (format == "stash.machine") return text_kind::machine;
  return text_kind::unknown;
}

/// The members of the outermost object: the first that tells decides.
void look_at_members(lenient_json& in, text_kind& found) {
  in.object([&](std::string_view key) {
    const token next = in.peek();
    if (found == text_kind::unknown && next == token::string && key == "format") {
      found = kind_of_format(in.raw_string());
      return;
    }
    if (found == text_kind::unknown && next == token::array) {
      if (key == "traceEvents") found = text_kind::profile;
      if (key == "nodes") found = text_kind::trace;
    }
    in.skip();
  });
}

/// Profiles may be a list of events alone.
void look_at_elements(lenient_json& in, text_kind& found) {
  in.array([&] {
    if (in.peek() != token::object) {
      in.skip();
      return;
    }
    in.object([&](std::string_view key) {
      if (key == "ph") found = text_kind::profile;
      in.skip();
    });
  });
}

}  // namespace

text_kind kind_of(std::string_view text) {
  text_kind found = packing_of(text);
  if (found != text_kind::unknown) return found;
  lenient_json in("kind_of", text);
  try {
    if (in.peek() == token::array) {
      look_at_elements(in, found);
    } else {
      look_at_members(in, found);
    }
  } catch (const error&) {
    // No JSON from here on: what was found in front of it counts.
  }
  return found;
}

bool is_packed(text_kind kind) noexcept {
  return kind >= text_kind::gz;
}

std::string_view description(text_kind kind) noexcept {
  switch (kind) {
    case text_kind::unknown:
      return "";
    case text_kind::trace:
      return "an execution trace of PyTorch (a list 'nodes')";
    case text_kind::profile:
      return "a profile (Chrome trace)";
    case text_kind::graph:
      return "a training graph ('stash.graph')";
    case text_kind::plan:
      return "a plan ('stash.plan')";
    case text_kind::machine:
      return "a machine ('stash.machine')";
    case text_kind::gz:
      return "a gz file";
    case text_kind::tar:
      return "a tar archive";
    case text_kind::zip:
      return "a zip archive";
    case text_kind::bzip2:
      return "a bzip2 file";
    case text_kind::xz:
      return "an xz file";
    case text_kind::zstd:
      return "a zstd file";
  }
  return "";
}

void refuse_other_kind(text_kind expected, std::string_view function, std::string_view text) {
  const text_kind found = kind_of(text);
  if (found == text_kind::unknown || found == expected) return;
  throw error(errc::bad_format, fmt::format("{}: text: expected {}, got {}", function, description(expected),
                                            description(found)));
}

}  // namespace stash::planner
