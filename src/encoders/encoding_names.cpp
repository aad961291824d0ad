// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <fmt/format.h>

#include "encoders/detail.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/format/kind_codec.hpp"
#include "encoders/message.hpp"
#include "encoders/public_call.hpp"

namespace stash {
namespace encoders {
namespace {

/// The names that make up an encoding's. Both are empty for an encoding that there is not.
struct name_parts {
  std::string_view kind, format;
};

name_parts parts_of(const encoding& e) noexcept {
  const kind_codec& codec = codec_of(e.kind);
  name_parts parts{codec.name, {}};
  if (!codec.has_format() || (codec.tiled() && e.values == value_format::source)) return parts;
  const value_format_info* const info = info_of(e.values);
  if (info == nullptr) return {};
  parts.format = info->name;
  return parts;
}

/// True if it has a name. Every call asks, so nothing is searched.
bool is_known(const encoding& e) noexcept {
  const kind_codec* const codec = find_codec(e.kind);
  if (codec == nullptr || !codec->has_format()) return codec != nullptr;
  return info_of(e.values) != nullptr || (codec->tiled() && e.values == value_format::source);
}

std::string unknown(const encoding& e) {
  return fmt::format("kind {} with value format {}", static_cast<unsigned>(e.kind),
                     static_cast<unsigned>(e.values));
}

}  // namespace

std::string list_of_names() {
  std::string list;
  for (const kind_codec* const known : kind_codecs)
    if (!known->name.empty()) list += fmt::format("{}{}", list.empty() ? "" : ", ", known->name);
  for (const value_format_info& known : value_formats)
    list += fmt::format(", {}", known.name);
  return list + ", or bitmap_ or csr_ with one of the value formats";
}

void check_known(std::string_view function, const encoding& e) {
  if (!is_known(e))
    fail(errc::invalid_argument, function, "encoding", "one of " + list_of_names(), unknown(e));
}

}  // namespace encoders

std::string to_string(const encoding& e) try {
  encoders::check_known("to_string", e);
  const auto [kind, format] = encoders::parts_of(e);
  return fmt::format("{}{}{}", kind, kind.empty() || format.empty() ? "" : "_", format);
} catch (...) {
  encoders::rethrow("to_string");
}

encoding parse_encoding(std::string_view name) try {
  using namespace encoders;
  encoding e;
  std::string_view rest = name;
  for (const kind_codec* const known : kind_codecs) {
    if (known->name.empty()) continue;
    if (known->name == name) {
      e.kind = known->kind;
      return e;
    }
    if (known->tiled() && name.starts_with(known->name) && name.substr(known->name.size()).starts_with('_')) {
      e.kind = known->kind;
      rest = name.substr(known->name.size() + 1);
    }
  }
  for (const value_format_info& known : value_formats) {
    if (known.name != rest) continue;
    if (!codec_of(e.kind).tiled()) e.kind = encoding_kind::cast;
    e.values = known.format;
    return e;
  }
  fail(errc::invalid_argument, "parse_encoding", "name", "one of " + list_of_names(),
       fmt::format("\"{}\"", shortened(name)));
} catch (...) {
  encoders::rethrow("parse_encoding");
}

}  // namespace stash
