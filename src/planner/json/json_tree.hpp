// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A JSON document in memory, as the readers and writers of graphs and plans use it. The parser and the
/// spelling of strings and numbers are nlohmann's; the tree is not, because destroying an nlohmann::json
/// allocates memory and ends the program where there is none.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "planner/graph/ids.hpp"

namespace stash::planner::json_text {

class value {
 public:
  using array = std::vector<value>;
  using member = std::pair<std::string, value>;
  using object = std::vector<member>;  ///< in the order of the text; of equal keys the last one counts

  value() = default;  ///< null
  // Moves only: when copying a variant runs out of memory, the library of g++ 12 destroys what was never
  // built.
  value(value&&) = default;
  value& operator=(value&&) = default;
  value(const value&) = delete;
  value& operator=(const value&) = delete;

  value(bool v) : data_(v) {}
  value(std::int32_t v) : data_(std::int64_t{v}) {}
  value(std::int64_t v) : data_(v) {}
  value(std::uint16_t v) : data_(std::int64_t{v}) {}
  value(std::uint64_t v) : data_(v) {}
  value(double v) : data_(v) {}
  template <class Kind>
  value(typed_id<Kind> id) : value(id.number()) {}
  value(const char* v) : data_(std::string(v)) {}
  value(std::string_view v) : data_(std::string(v)) {}
  value(std::string v) : data_(std::move(v)) {}
  value(array v) : data_(std::move(v)) {}
  template <class Integer>
  explicit value(const std::vector<Integer>& list) : data_(array(list.begin(), list.end())) {}

  /// An object with the members key, value, key, value...
  template <class... KeysAndValues>
  static value members(KeysAndValues&&... list) {
    value v;
    v.data_ = object();
    v.set_all(std::forward<KeysAndValues>(list)...);
    return v;
  }

  template <class T>
  bool is() const noexcept {
    return std::holds_alternative<T>(data_);
  }
  template <class T>
  const T& get() const {
    return std::get<T>(data_);
  }
  template <class T>
  T& get() {
    return std::get<T>(data_);
  }

  /// The member of an object, or null.
  const value* find(std::string_view key) const;
  /// Adds a member to an object, which must not have one of that name.
  void set(std::string_view key, value v);
  /// True for an array, object or string without content.
  bool empty() const noexcept;

  /// Text without spaces. Throws nlohmann::json::exception for strings that are not UTF-8.
  std::string dump() const;

 private:
  void append_to(std::string& text) const;
  void set_all() {}
  template <class V, class... Rest>
  void set_all(const char* key, V&& v, Rest&&... rest) {
    set(key, value(std::forward<V>(v)));
    set_all(std::forward<Rest>(rest)...);
  }

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, array, object> data_;
};

/// A number beyond double, and its last byte, counted from 1.
struct number_out_of_range {
  std::string number;
  std::size_t byte = 0;
};

/// The document that a text holds. Throws nlohmann::json::parse_error with the byte at which the text breaks
/// the grammar, and number_out_of_range. The nesting must be small: the
/// tree is destroyed recursively.
value parse_tree(std::string_view text);

}  // namespace stash::planner::json_text
