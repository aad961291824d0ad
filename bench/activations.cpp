// SPDX-License-Identifier: Apache-2.0
#include "bench/activations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace stash::bench {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the files hold little-endian numbers");

constexpr const char* index_name = "activations.json";

tensor read_values(const fs::path& path, const std::vector<std::int64_t>& dims) {
  tensor result{shape(std::span<const std::int64_t>(dims))};
  std::error_code missing;
  const auto size = fs::file_size(path, missing);
  if (missing) throw error(errc::io_failure, fmt::format("{}: {}", path.string(), missing.message()));
  if (size != static_cast<std::uintmax_t>(result.bytes())) {
    throw error(errc::bad_format, fmt::format("{}: expected {} bytes for its shape, got {}", path.string(),
                                              result.bytes(), size));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in.read(reinterpret_cast<char*>(result.values().data()), result.bytes()))
    throw error(errc::io_failure, fmt::format("{}: reading failed", path.string()));
  return result;
}

void read_kept(const nlohmann::json& map, activation& into) {
  const auto name = map.at("kept").get<std::string>();
  if (name == "recompute") return;
  into.kept = parse_encoding(name == "none" ? "shape_only" : name);
  if (into.kept->kind != encoding_kind::relu_pool && into.kept->kind != encoding_kind::window_index) return;
  const auto by = map.at("pooled_by").get<std::array<std::int32_t, 6>>();
  into.pooling = {by[0], by[1], by[2], by[3], by[4], by[5]};
  into.pooled_dims = map.at("pooled_shape").get<std::vector<std::int64_t>>();
  into.kept->window_taps = static_cast<std::uint16_t>(into.pooling.taps());
}

network_activations read_network(const fs::path& folder) {
  const fs::path path = folder / index_name;
  std::ifstream in(path);
  try {
    const auto index = nlohmann::json::parse(in);
    network_activations result{index.at("network").get<std::string>(), {}};
    for (const auto& map : index.at("maps")) {
      auto dims = map.at("shape").get<std::vector<std::int64_t>>();
      tensor values = read_values(folder / map.at("file").get<std::string>(), dims);
      result.maps.push_back(
          {map.at("name").get<std::string>(), std::move(dims), std::move(values), {}, {}, {}});
      read_kept(map, result.maps.back());
    }
    if (result.maps.empty()) throw error(errc::bad_format, fmt::format("{}: no maps", path.string()));
    return result;
  } catch (const nlohmann::json::exception& e) {
    throw error(errc::bad_format, fmt::format("{}: {}", path.string(), e.what()));
  }
}

}  // namespace

std::vector<network_activations> read_activations(const std::string& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  if (fs::exists(fs::path(folder) / index_name, failed)) {
    found.emplace_back(folder);
  } else {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
      if (fs::exists(entry.path() / index_name)) found.push_back(entry.path());
    }
  }
  if (found.empty()) {
    throw error(errc::io_failure,
                fmt::format("{}: expected a folder that scripts/dump_activations has filled, got {}", folder,
                            failed ? failed.message() : "one without " + std::string(index_name)));
  }
  std::sort(found.begin(), found.end());
  std::vector<network_activations> result;
  result.reserve(found.size());
  for (const fs::path& path : found)
    result.push_back(read_network(path));
  return result;
}

}  // namespace stash::bench
