// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Writing side of the JSON text: the outer structure over several lines, each element of a list on one.

#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "planner/graph/graph.hpp"
#include "planner/json/json_tree.hpp"
#include "stash/error.hpp"

namespace stash::planner::json_text {

/// A finite number. Throws error(invalid_argument) naming `what` otherwise.
value finite(double number, std::string_view what);
/// The same, written with the digits that a float needs.
value finite(float number, std::string_view what);

/// Adds a member unless the value is its default.
template <class T>
void put(value& object, const char* key, const T& v, const T& left_out) {
  if (v != left_out) object.set(key, v);
}

/// Adds a member unless the list is empty.
template <class List>
void put_list(value& object, const char* key, List&& list) {
  if (!list.empty()) object.set(key, value(std::forward<List>(list)));
}

class text_writer {
 public:
  text_writer() : text_("{") {}

  void member(std::string_view key, const value& v) { start(key) += v.dump(); }

  void begin_object(std::string_view key) {
    start(key) += "{";
    indent_ += "  ";
    first_ = true;
  }

  void end_object() {
    indent_.resize(indent_.size() - 2);
    text_ += "\n" + indent_ + "}";
    first_ = false;
  }

  template <class List, class Convert>
  void list(std::string_view key, const List& elements, Convert convert) {
    start(key) += "[";
    const char* separator = "\n";
    for (const auto& e : elements) {
      text_ += separator + indent_ + "  " + convert(e).dump();
      separator = ",\n";
    }
    text_ += elements.empty() ? "]" : "\n" + indent_ + "]";
  }

  std::string finish() && { return std::move(text_) + "\n}\n"; }

 private:
  std::string& start(std::string_view key) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    return text_ += indent_ + "\"" + std::string(key) + "\": ";
  }

  std::string text_;
  std::string indent_ = "  ";
  bool first_ = true;
};

/// The members of a graph, without format and version.
void write_graph(text_writer& out, const graph& g);
void write_machine(text_writer& out, const machine& m);

/// The text that `write` produces; names that are not UTF-8 become error(invalid_argument).
template <class Write>
std::string written(Write write) {
  try {
    text_writer out;
    write(out);
    return std::move(out).finish();
  } catch (const nlohmann::json::exception&) {
    throw error(errc::invalid_argument, "to_json: names: expected UTF-8, got other bytes");
  }
}

}  // namespace stash::planner::json_text
