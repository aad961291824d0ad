// SPDX-License-Identifier: Apache-2.0
// Execution traces: the two spellings of a node (1.0.1: flat fields; later: inputs/outputs objects and a list
// of attributes) are distinguished by what is there, not by the schema, so that versions in between are read
// too.

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "planner/graph/byte_sizes.hpp"
#include "planner/json/lenient_json.hpp"
#include "planner/json/text_kind.hpp"
#include "planner/trace/trace.hpp"
#include "planner/trace/trace_ops.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

using kind = lenient_json::kind;

constexpr std::size_t longest_text = 200;

/// Tensors, shapes and types come in three lists that are put together when the node is complete.
struct value_lists {
  std::vector<trace_value> values;
  std::vector<std::vector<std::vector<std::int64_t>>> shapes;  ///< per value: the innermost lists
  std::vector<std::string_view> types;
};

trace_type type_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, trace_type>, 16> names{{
      {"float", trace_type::f32},
      {"c10::Half", trace_type::f16},
      {"half", trace_type::f16},
      {"c10::BFloat16", trace_type::bf16},
      {"bfloat16", trace_type::bf16},
      {"double", trace_type::f64},
      {"bool", trace_type::boolean},
      {"long int", trace_type::integer},
      {"long", trace_type::integer},
      {"int", trace_type::integer},
      {"short", trace_type::integer},
      {"short int", trace_type::integer},
      {"unsigned char", trace_type::integer},
      {"signed char", trace_type::integer},
      {"char", trace_type::integer},
      {"long long", trace_type::integer},
  }};
  for (const auto& [known, type] : names) {
    if (name == known) return type;
  }
  return trace_type::other;
}

class reader {
 public:
  explicit reader(std::string_view text) : in_("read_trace", text) {}

  trace run() {
    bool any = false;
    in_.object([&](std::string_view key) {
      if (key == "schema" && in_.peek() == kind::string) {
        result_.schema = in_.string();
        if (!result_.schema.starts_with("1."))
          in_.fail("a schema of version 1 before this position, which '" + result_.schema + "' is not");
      } else if (key == "nodes") {
        any = true;
        in_.array([&] { node(); });
      } else {
        in_.skip();
      }
    });
    in_.finish();
    if (!any) in_.fail("a list 'nodes' before this position");
    sort_nodes();
    traces::find_iterations(result_);
    return std::move(result_);
  }

 private:
  void node() {
    trace_node n;
    value_lists inputs, outputs;
    bool has_id = false;
    bool has_name = false;
    in_.object([&](std::string_view key) {
      if (key == "id") {
        n.id = whole("an id");
        has_id = true;
      } else if (key == "ctrl_deps" || key == "parent") {
        n.parent = whole("the id of the parent");
      } else if (key == "name") {
        n.name = in_.string();
        has_name = true;
      } else if (key == "inputs" || key == "outputs") {
        value_lists& lists = key == "inputs" ? inputs : outputs;
        if (in_.peek() == kind::object) {
          in_.object([&](std::string_view part) { list(part, lists); });
        } else {
          list("values", lists);
        }
      } else if (key.starts_with("input_")) {
        list(key.substr(6), inputs);
      } else if (key.starts_with("output_")) {
        list(key.substr(7), outputs);
      } else if (key == "attrs" && in_.peek() == kind::array) {
        in_.array([&] { attribute(n); });
      } else {
        field(key, n);
      }
    });
    if (!has_id || !has_name) in_.fail("a node with an id and a name before this position");
    n.inputs = joined(inputs, n.id);
    n.outputs = joined(outputs, n.id);
    result_.nodes.push_back(std::move(n));
  }

  std::int64_t whole(std::string_view expected) {
    const std::size_t before = in_.position();
    const auto value = in_.integer();
    if (!value)
      throw error(errc::bad_format, fmt::format("read_trace: byte {}: expected {}, got '{}'", before,
                                                expected, "something else"));
    return *value;
  }

  /// {"name": ..., "type": ..., "value": ...}; the name may follow the value.
  void attribute(trace_node& n) {
    std::string_view name, text;
    in_.object([&](std::string_view key) {
      if (key == "name" && in_.peek() == kind::string) {
        name = in_.raw_string();
      } else if (key == "value") {
        text = in_.skip();
      } else {
        in_.skip();
      }
    });
    if (text.empty()) return;
    lenient_json value("read_trace", text);
    std::swap(value, in_);
    field(name, n);
    std::swap(value, in_);
  }

  void field(std::string_view key, trace_node& n) {
    if (key == "seq_id") {
      n.sequence = in_.integer().value_or(-1);
    } else if (key == "rf_id") {
      n.record_function = in_.integer().value_or(-1);
    } else if (key == "tid") {
      n.thread = in_.integer().value_or(0);
    } else if (key == "op_schema" && in_.peek() == kind::string) {
      n.schema = in_.string();
    } else if (key == "kernel_backend" && in_.peek() == kind::string) {
      n.backend = in_.string();
    } else {
      in_.skip();
    }
  }

  void list(std::string_view part, value_lists& lists) {
    const bool is_list = in_.peek() == kind::array;
    if (is_list && part == "values") {
      in_.array([&] { lists.values.push_back(value()); });
    } else if (is_list && part == "shapes") {
      in_.array([&] {
        lists.shapes.emplace_back();
        shape(lists.shapes.back());
      });
    } else if (is_list && part == "types") {
      in_.array([&] {
        if (in_.peek() == kind::string) {
          lists.types.push_back(in_.raw_string());
        } else {
          in_.skip();
          lists.types.emplace_back();
        }
      });
    } else {
      in_.skip();
    }
  }

  trace_value value() {
    trace_value v;
    if (in_.peek() == kind::array) {
      const std::size_t begin = in_.position();
      tensors(v.tensors);
      if (v.tensors.empty()) keep(v.text, in_.text_from(begin));
    } else {
      keep(v.text, in_.skip());
    }
    return v;
  }

  static void keep(std::string& to, std::string_view text) {
    if (text.size() > longest_text) return;
    for (const char c : text)
      to.push_back(c >= ' ' && c < 127 ? c : '?');
  }

  /// An array: a tensor if it is five numbers and the name of a device, else whatever tensors are inside.
  void tensors(std::vector<trace_tensor>& found) {
    std::array<std::int64_t, 5> numbers{};
    std::size_t count = 0;
    bool plain = true;
    std::string_view device;
    in_.array([&] {
      const kind next = in_.peek();
      if (next == kind::array) {
        plain = false;
        tensors(found);
      } else if (next == kind::number && count < numbers.size()) {
        const auto number = in_.integer();
        plain = plain && number.has_value();
        numbers[count++] = number.value_or(0);
      } else if (next == kind::string && count == numbers.size()) {
        device = in_.raw_string();
        ++count;
      } else {
        plain = false;
        in_.skip();
      }
    });
    if (!plain || count != numbers.size() + 1) return;
    trace_tensor t;
    t.id = numbers[0];
    t.storage = numbers[1];
    t.offset = numbers[2];
    t.elements = numbers[3];
    t.element_bytes = numbers[4];
    t.device = device_index(device);
    found.push_back(std::move(t));
  }

  std::int32_t device_index(std::string_view name) {
    // Nearly all mentions are of the device of the one before.
    const auto last = static_cast<std::size_t>(last_device_);
    if (last < result_.devices.size() && result_.devices[last] == name) return last_device_;
    const auto at = std::find(result_.devices.begin(), result_.devices.end(), name);
    last_device_ = static_cast<std::int32_t>(at - result_.devices.begin());
    if (at == result_.devices.end()) {
      if (result_.devices.size() == 1000) in_.fail("at most 1000 devices");
      result_.devices.emplace_back(name);
    }
    return last_device_;
  }

  /// Collects the innermost lists of numbers.
  void shape(std::vector<std::vector<std::int64_t>>& lists) {
    if (in_.peek() != kind::array) {
      in_.skip();
      return;
    }
    std::vector<std::int64_t> dimensions;
    bool inner = true;
    in_.array([&] {
      if (in_.peek() == kind::array) {
        inner = false;
        shape(lists);
      } else {
        dimensions.push_back(in_.integer().value_or(-1));
      }
    });
    if (inner) lists.push_back(std::move(dimensions));
  }

  static std::vector<trace_value> joined(value_lists& lists, std::int64_t id) {
    for (std::size_t i = 0; i < lists.values.size(); ++i) {
      std::vector<trace_tensor>& tensors = lists.values[i].tensors;
      if (tensors.empty()) continue;
      if (i < lists.types.size()) set_types(tensors, lists.types[i]);
      if (i < lists.shapes.size() && lists.shapes[i].size() == tensors.size()) {
        for (std::size_t k = 0; k < tensors.size(); ++k)
          tensors[k].shape = std::move(lists.shapes[i][k]);
      }
      for (const trace_tensor& t : tensors)
        check(t, id);
    }
    return std::move(lists.values);
  }

  static void set_types(std::vector<trace_tensor>& tensors, std::string_view types) {
    constexpr std::string_view opening = "Tensor(";
    std::size_t at = 0;
    for (trace_tensor& t : tensors) {
      at = types.find(opening, at);
      if (at == std::string_view::npos) return;
      at += opening.size();
      const std::size_t end = types.find(')', at);
      if (end == std::string_view::npos) return;
      t.type = type_of(types.substr(at, end - at));
      at = end;
    }
  }

  static void check(const trace_tensor& t, std::int64_t id) {
    const auto small = [](std::int64_t n) { return n >= 0 && n <= largest_bytes; };
    if (small(t.offset) && small(t.elements) && t.element_bytes >= 0 && t.element_bytes <= 1024 &&
        (t.offset + t.elements) <= largest_bytes / std::max<std::int64_t>(1, t.element_bytes)) {
      return;
    }
    throw error(
        errc::bad_format,
        fmt::format("read_trace: node {}: expected tensors of 0 to 2^53 bytes, got one of {} elements of {} "
                    "bytes at offset {}",
                    id, t.elements, t.element_bytes, t.offset));
  }

  void sort_nodes() {
    std::vector<trace_node>& nodes = result_.nodes;
    std::stable_sort(nodes.begin(), nodes.end(),
                     [](const trace_node& a, const trace_node& b) { return a.id < b.id; });
    const auto twice = std::adjacent_find(
        nodes.begin(), nodes.end(), [](const trace_node& a, const trace_node& b) { return a.id == b.id; });
    if (twice != nodes.end()) {
      throw error(errc::bad_format,
                  fmt::format("read_trace: expected nodes with ids of their own, got {} twice", twice->id));
    }
    // Iterations end one past the last.
    constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
    if (!nodes.empty() && nodes.back().id == largest)
      throw error(errc::bad_format, fmt::format("read_trace: expected ids below 2^63 - 1, got {}", largest));
  }

  lenient_json in_;
  trace result_;
  std::int32_t last_device_ = 0;
};

}  // namespace

trace read_trace(std::string_view text) {
  return read_as(text_kind::trace, "read_trace", text, [text] { return reader(text).run(); });
}

}  // namespace stash::planner
