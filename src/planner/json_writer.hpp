#pragma once
/// \file
/// Writing side of the JSON text: the outer structure over several lines, each element of a list on one.

#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "planner/graph.hpp"
#include "stash/error.hpp"

namespace stash::planner::json_text {

using ordered_json = nlohmann::ordered_json;

/// A finite number. Throws error(invalid_argument) naming `what` otherwise.
ordered_json finite(double value, std::string_view what);
/// The same, written with the digits that a float needs.
ordered_json finite(float value, std::string_view what);

/// Sets object[key] unless the value is its default.
template <class T>
void put(ordered_json& object, const char* key, const T& value, const T& left_out) {
  if (value != left_out) object[key] = value;
}

/// Sets object[key] to the list unless it is empty.
template <class List>
void put_list(ordered_json& object, const char* key, const List& list) {
  if (!list.empty()) object[key] = list;
}

class text_writer {
 public:
  text_writer() : text_("{") {}

  void member(std::string_view key, const ordered_json& value) { start(key) += value.dump(); }

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
