// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Checked access to parsed JSON: every accessor either gives a value of the expected type and range or
/// throws error(bad_format) with the path of the field.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include "encoders/message.hpp"
#include "planner/graph/byte_sizes.hpp"
#include "planner/graph/names.hpp"
#include "planner/json/json_tree.hpp"
#include "stash/error.hpp"

namespace stash::planner::json_text {

inline constexpr std::int64_t largest_id = std::numeric_limits<std::int32_t>::max();

/// Parses text; refuses nesting deeper than any graph or plan has, so that no reader can exhaust the stack.
value parse(std::string_view function, std::string_view text);

/// A JSON value together with the way to it. Holds a pointer to its parent, which must outlive it.
class field {
 public:
  field(std::string_view function, const value& root) : value_(&root), function_(function) {}

  /// Throws error(bad_format): "function: path: expected ..., got ...".
  [[noreturn]] void fail(std::string_view expected, std::string_view got) const;
  [[noreturn]] void fail_type(std::string_view expected) const;

  /// A required member. Throws if this is not an object or has no such member.
  field at(std::string_view key) const;
  /// An optional member. Throws if this is not an object.
  std::optional<field> find(std::string_view key) const;
  /// The same for a member that older files call by another name.
  std::optional<field> find(std::string_view key, std::string_view older) const;

  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  double number(double least, double most) const;
  bool boolean() const;
  std::string text() const;

  std::int64_t bytes() const { return integer(0, largest_bytes); }
  /// A number or an id; -1: none.
  template <class Id = std::int32_t>
  Id id() const {
    return static_cast<Id>(integer(-1, largest_id));
  }

  template <class Enum>
  Enum one_of() const {
    if (!value_->is<std::string>()) fail_type("a string");
    const auto& name = value_->get<std::string>();
    const std::optional<Enum> named = value_of_name<Enum>(name);
    if (!named) fail("one of " + list_of_names<Enum>(), fmt::format("'{}'", shortened(name)));
    return *named;
  }

  /// Calls visit(element) for every element of an array.
  template <class Visit>
  void for_each(Visit visit) const {
    if (!value_->is<value::array>()) fail_type("an array");
    const auto& elements = value_->get<value::array>();
    for (std::size_t i = 0; i < elements.size(); ++i)
      visit(field(elements[i], *this, {}, i));
  }

  /// The same for an optional member that is an array.
  template <class Visit>
  void for_each(std::string_view key, Visit visit) const {
    if (const auto list = find(key)) list->for_each(visit);
  }

 private:
  field(const value& v, const field& parent, std::string_view key, std::size_t index)
      : value_(&v), parent_(&parent), function_(parent.function_), key_(key), index_(index) {}

  std::string path() const;

  const value* value_;
  const field* parent_ = nullptr;
  std::string_view function_;
  std::string_view key_;  ///< empty: an array element
  std::size_t index_ = 0;
};

/// Throws unless this is a document of that format ("stash.graph", "stash.plan") and version.
void check_header(const field& root, std::string_view format, int version);

/// Adds up sizes and refuses totals beyond largest_total_bytes.
class byte_total {
 public:
  void add(std::int64_t bytes, const field& culprit) {
    if (bytes > largest_total_bytes - sum_) {
      culprit.fail(fmt::format("sizes of at most {} bytes in total", largest_total_bytes), "more");
    }
    sum_ += bytes;
  }

 private:
  std::int64_t sum_ = 0;
};

/// The graph as a member of a larger document: all checks of types and ranges, but no check_graph.
graph read_graph(const field& f);
machine read_machine(const field& root);

}  // namespace stash::planner::json_text
