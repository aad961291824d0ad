// SPDX-License-Identifier: Apache-2.0
#include "fuzz/json_edits.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

namespace stash::fuzz {
namespace {

using json = nlohmann::ordered_json;

/// What an edit does to its node; `detail` says with what, or to which element or member of it.
enum class change : std::uint8_t {
  telling_value,
  flip_bits,
  drop_child,
  repeat_child,
  swap_child,
  other_node,
  count
};

struct edit {
  std::uint16_t node = 0;
  std::uint8_t what = 0, detail = 0;
};

/// A value in a document's text.
struct text_node {
  std::size_t key = 0;  ///< where the member starts, if it is one; else where the value does
  std::size_t begin = 0, end = 0;
  std::size_t nodes_end = 0;  ///< the nodes from here on do not lie in this one
  std::vector<std::size_t> children;
  bool is_array = false, is_integer = false;
};

const std::string& telling_value(std::uint8_t which) {
  static const std::vector<json> values = {0,
                                           1,
                                           -1,
                                           2,
                                           3,
                                           64,
                                           255,
                                           256,
                                           65536,
                                           std::numeric_limits<std::int32_t>::max(),
                                           std::numeric_limits<std::int32_t>::min(),
                                           std::int64_t{1} << 31,
                                           std::int64_t{1} << 53,
                                           (std::int64_t{1} << 53) + 1,
                                           std::numeric_limits<std::int64_t>::max(),
                                           std::numeric_limits<std::int64_t>::min(),
                                           std::numeric_limits<std::uint64_t>::max(),
                                           0.5,
                                           -0.0,
                                           1e308,
                                           1e-320,
                                           true,
                                           false,
                                           nullptr,
                                           "",
                                           "conv2d",
                                           "raw",
                                           "bitmap",
                                           "feature_map",
                                           "gradient",
                                           "backward",
                                           "encoded",
                                           "value",
                                           "from_y",
                                           json::array(),
                                           json::object(),
                                           json::array({0}),
                                           json::array({1, 1})};
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> all;
    for (const json& value : values)
      all.push_back(value.dump());
    return all;
  }();
  return texts[which % texts.size()];
}

/// A document without spaces, and where its values lie: edits cost little more than copying the text.
class document {
 public:
  explicit document(const std::string& text) { write(json::parse(text)); }

  std::string edited(std::span<const edit> edits) const {
    std::string out;
    append(0, edits, out);
    return out;
  }
  std::size_t nodes() const { return nodes_.size(); }

 private:
  void write(const json& value) {
    const std::size_t at = nodes_.size();
    nodes_.push_back({text_.size(), text_.size(), 0, 0, {}, value.is_array(), value.is_number_integer()});
    if (value.is_structured()) {
      text_ += value.is_array() ? '[' : '{';
      for (const auto& [key, child] : value.items()) {
        if (!nodes_[at].children.empty()) text_ += ',';
        const std::size_t begin = text_.size();
        if (value.is_object()) text_ += json(key).dump() + ':';
        const std::size_t child_node = nodes_.size();
        nodes_[at].children.push_back(child_node);
        write(child);
        nodes_[child_node].key = begin;
      }
      text_ += value.is_array() ? ']' : '}';
    } else {
      text_ += value.dump();
    }
    nodes_[at].end = text_.size();
    nodes_[at].nodes_end = nodes_.size();
  }

  void append(std::size_t at, std::span<const edit> edits, std::string& out) const {
    const text_node& node = nodes_[at];
    const auto lies_inside = [&](const edit& e) { return e.node >= at && e.node < node.nodes_end; };
    if (std::none_of(edits.begin(), edits.end(), lies_inside)) {
      out.append(text_, node.begin, node.end - node.begin);
      return;
    }
    std::vector<std::size_t> children = node.children;
    for (const edit& e : edits) {
      if (e.node != at) continue;
      if (replace(at, e, out)) return;
      rearrange(node, e, children);
    }
    if (node.children.empty()) {
      out.append(text_, node.begin, node.end - node.begin);
      return;
    }
    const char* separator = node.is_array ? "[" : "{";
    for (const std::size_t child : children) {
      out += std::exchange(separator, ",");
      out.append(text_, nodes_[child].key, nodes_[child].begin - nodes_[child].key);
      append(child, edits, out);
    }
    if (children.empty()) out += separator;
    out += node.is_array ? ']' : '}';
  }

  /// True if the edit put something else in place of the node.
  bool replace(std::size_t at, const edit& e, std::string& out) const {
    const text_node& node = nodes_[at];
    const auto what = static_cast<change>(e.what);
    if (what == change::telling_value) {
      out += telling_value(e.detail);
      return true;
    }
    if (what == change::flip_bits && node.is_integer) {
      const std::int64_t value = std::strtoll(&text_[node.begin], nullptr, 10);
      out += std::to_string(value ^ e.detail);
      return true;
    }
    if (what == change::other_node) {
      const text_node& other = nodes_[(at + 1 + e.detail) % nodes_.size()];
      out.append(text_, other.begin, other.end - other.begin);
      return true;
    }
    return false;
  }

  static void rearrange(const text_node& node, const edit& e, std::vector<std::size_t>& children) {
    if (children.empty()) return;
    const std::size_t child = e.detail % children.size();
    const auto what = static_cast<change>(e.what);
    if (what == change::drop_child) children.erase(children.begin() + static_cast<std::ptrdiff_t>(child));
    if (what == change::repeat_child && node.is_array) children.push_back(children[child]);
    if (what == change::swap_child && node.is_array) std::swap(children[child], children.front());
  }

  std::string text_;
  std::vector<text_node> nodes_;
};

}  // namespace

std::string edited_text(std::span<const std::uint8_t> input, const std::vector<std::string>& documents) {
  static const std::vector<document> known(documents.begin(), documents.end());
  const auto which = take<std::uint8_t>(input);
  if (which >= 128) return {input.begin(), input.end()};
  const document& chosen = known[which < 64 ? 0 : which % known.size()];
  std::vector<edit> edits;
  while (!input.empty()) {
    auto e = take<edit>(input);
    e.node = static_cast<std::uint16_t>(e.node % chosen.nodes());
    e.what %= static_cast<std::uint8_t>(change::count);
    edits.push_back(e);
  }
  return chosen.edited(edits);
}

std::vector<bytes> document_seeds(const std::vector<std::string>& documents) {
  std::vector<bytes> all;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    std::uint8_t which = 64;
    while (which % documents.size() != i)
      ++which;
    all.push_back({which});
    all.push_back({which, 20, 0, 0, 3});
    all.push_back({which, 60, 0, 1, 1, 9, 0, 3, 2});
    bytes text{255};
    text.insert(text.end(), documents[i].begin(), documents[i].end());
    all.push_back(text);
  }
  return all;
}

}  // namespace stash::fuzz
