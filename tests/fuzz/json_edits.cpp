#include "fuzz/json_edits.hpp"

#include <iterator>
#include <limits>

#include <nlohmann/json.hpp>

namespace stash::fuzz {
namespace {

using json = nlohmann::ordered_json;

struct edit {
  std::uint16_t node = 0;
  std::uint8_t what = 0, detail = 0;
};

void list_nodes(json& value, std::vector<json*>& nodes) {
  nodes.push_back(&value);
  if (!value.is_structured()) return;
  for (json& child : value)
    list_nodes(child, nodes);
}

json telling_value(std::uint8_t which) {
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
  return values[which % values.size()];
}

void carry_out(const edit& e, json& document) {
  std::vector<json*> nodes;
  list_nodes(document, nodes);
  // A node that takes the value of one around it may double the document.
  constexpr std::size_t most_nodes = 10000;
  if (nodes.size() > most_nodes) return;
  json& node = *nodes[e.node % nodes.size()];
  const auto child = [&] {
    return std::next(node.begin(), e.detail % static_cast<std::ptrdiff_t>(node.size()));
  };
  switch (e.what % 6) {
    case 0:
      node = telling_value(e.detail);
      break;
    case 1:
      if (node.is_number_integer()) node = static_cast<std::int64_t>(node.get<std::int64_t>() ^ e.detail);
      break;
    case 2:
      if (node.is_structured() && !node.empty()) node.erase(child());
      break;
    case 3:
      if (node.is_array() && !node.empty()) node.push_back(json(*child()));
      break;
    case 4:
      if (node.is_array() && node.size() > 1) std::swap(*child(), node.front());
      break;
    default:
      node = json(*nodes[(e.node + std::size_t{1} + e.detail) % nodes.size()]);
      break;
  }
}

}  // namespace

std::string edited_text(std::span<const std::uint8_t> input, const std::vector<std::string>& documents) {
  const auto which = take<std::uint8_t>(input);
  if (which >= 128) return {input.begin(), input.end()};
  const std::string& text = documents[which % documents.size()];
  if (input.empty()) return text;
  json document = json::parse(text);
  while (!input.empty())
    carry_out(take<edit>(input), document);
  return document.dump();
}

std::vector<bytes> document_seeds(const std::vector<std::string>& documents) {
  std::vector<bytes> all;
  for (std::uint8_t which = 0; which < documents.size(); ++which) {
    all.push_back({which});
    all.push_back({which, 20, 0, 0, 3});
    all.push_back({which, 60, 0, 1, 1, 9, 0, 3, 2});
    bytes text{255};
    text.insert(text.end(), documents[which].begin(), documents[which].end());
    all.push_back(text);
  }
  return all;
}

}  // namespace stash::fuzz
