// SPDX-License-Identifier: Apache-2.0
#include "planner/json/json_field.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace stash::planner::json_text {
namespace {

constexpr int deepest_nesting = 32;

bool nests_too_deeply(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > deepest_nesting) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

std::string_view with_article(const value& v) {
  if (v.is<value::object>()) return "an object";
  if (v.is<value::array>()) return "an array";
  if (v.is<std::string>()) return "a string";
  if (v.is<bool>()) return "a boolean";
  if (v.is<double>()) return "a number";
  if (v.is<std::monostate>()) return "null";
  return "an integer";
}

}  // namespace

value parse(std::string_view function, std::string_view text) {
  if (nests_too_deeply(text)) {
    throw error(errc::bad_format, fmt::format("{}: text: expected at most {} levels of nesting, got more",
                                              function, deepest_nesting));
  }
  try {
    return parse_tree(text);
  } catch (const nlohmann::json::parse_error& e) {
    throw error(errc::bad_format,
                fmt::format("{}: text: expected JSON, got a syntax error at byte {}", function, e.byte));
  } catch (const number_out_of_range& e) {
    constexpr std::size_t longest = 40;
    throw error(errc::bad_format,
                fmt::format("{}: text: expected finite numbers, got {}{}, which ends at byte {}", function,
                            e.number.substr(0, longest), e.number.size() > longest ? "..." : "", e.byte));
  }
}

void field::fail(std::string_view expected, std::string_view got) const {
  const std::string where = path();
  throw error(errc::bad_format, fmt::format("{}: {}: expected {}, got {}", function_,
                                            where.empty() ? "document" : where, expected, got));
}

void field::fail_type(std::string_view expected) const {
  fail(expected, with_article(*value_));
}

field field::at(std::string_view key) const {
  if (const auto member = find(key)) return *member;
  field(*value_, *this, key, 0).fail("a value", "nothing");
}

std::optional<field> field::find(std::string_view key) const {
  if (!value_->is<value::object>()) fail_type("an object");
  const value* const member = value_->find(key);
  if (member == nullptr) return std::nullopt;
  return field(*member, *this, key, 0);
}

std::optional<field> field::find(std::string_view key, std::string_view older) const {
  const auto found = find(key);
  return found ? found : find(older);
}

std::int64_t field::integer(std::int64_t least, std::int64_t most) const {
  const bool is_unsigned = value_->is<std::uint64_t>();
  if (!is_unsigned && !value_->is<std::int64_t>()) fail_type("an integer");
  const auto expected = [&] { return fmt::format("an integer from {} to {}", least, most); };
  if (is_unsigned) {
    const auto v = value_->get<std::uint64_t>();
    if (v > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail(expected(), fmt::to_string(v));
  }
  const auto v =
      is_unsigned ? static_cast<std::int64_t>(value_->get<std::uint64_t>()) : value_->get<std::int64_t>();
  if (v < least || v > most) fail(expected(), fmt::to_string(v));
  return v;
}

double field::number(double least, double most) const {
  double v = 0;
  if (value_->is<double>()) {
    v = value_->get<double>();
  } else if (value_->is<std::int64_t>()) {
    v = static_cast<double>(value_->get<std::int64_t>());
  } else if (value_->is<std::uint64_t>()) {
    v = static_cast<double>(value_->get<std::uint64_t>());
  } else {
    fail_type("a number");
  }
  if (!(v >= least && v <= most)) fail(fmt::format("a number from {} to {}", least, most), fmt::to_string(v));
  return v;
}

bool field::boolean() const {
  if (!value_->is<bool>()) fail_type("a boolean");
  return value_->get<bool>();
}

std::string field::text() const {
  if (!value_->is<std::string>()) fail_type("a string");
  return value_->get<std::string>();
}

std::string field::path() const {
  if (parent_ == nullptr) return {};
  std::string above = parent_->path();
  if (key_.empty()) return fmt::format("{}[{}]", above, index_);
  return above.empty() ? std::string(key_) : fmt::format("{}.{}", above, key_);
}

void check_header(const field& root, std::string_view format, int version) {
  if (const auto found = root.find("format"); found && found->text() != format) {
    found->fail(fmt::format("'{}'", format), fmt::format("'{}'", shortened(found->text())));
  }
  const field found = root.at("version");
  const std::int64_t v = found.integer(std::numeric_limits<std::int32_t>::min(), largest_id);
  if (v != version) found.fail(fmt::format("version {}", version), fmt::to_string(v));
}

}  // namespace stash::planner::json_text
