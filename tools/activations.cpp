#include "activations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "files.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

static_assert(std::endian::native == std::endian::little, "the files hold little-endian numbers");

// A slice of a concatenation is not whole behind its op.
bool puts_out_relu(const planner::op& o) {
  if (o.outputs.empty() || !o.outputs[0].whole()) return false;
  return o.kind == planner::op_kind::relu || o.kind == planner::op_kind::relu_max_pool ||
         (o.kind == planner::op_kind::batch_norm && o.attributes.fused_relu);
}

std::string file_of(const std::string& op_name) {
  std::string file = op_name + ".f32";
  std::replace(file.begin(), file.end(), '/', '.');
  return file;
}

}  // namespace

made_folder::made_folder(const std::string& path) {
  std::error_code failed;
  for (std::filesystem::path at = path; !at.empty() && !std::filesystem::exists(at, failed);
       at = at.parent_path())
    made_.push_back(at);
  std::filesystem::create_directories(path, failed);
  if (failed)
    throw error(errc::io_failure,
                fmt::format("{}: expected a folder or room for one, got: {}", path, failed.message()));
}

made_folder::~made_folder() {
  std::error_code ignored;
  for (const std::filesystem::path& folder : made_)
    std::filesystem::remove(folder, ignored);
}

int write_activations(const std::string& folder, training_run& run, const training_options& options,
                      image_source& source) {
  executor::trainer& t = *run.trainer;
  executor::executor& e = t.current();
  const planner::graph& g = e.current_plan().network;
  nlohmann::ordered_json maps = nlohmann::ordered_json::array();
  // Right behind its op an output is whole and dense, whatever the plan does with it later.
  e.after_step = [&](std::size_t i) {
    const planner::step& s = e.current_plan().steps[i];
    if (s.kind != planner::step_kind::run || !puts_out_relu(g.op_at(s.op))) return;
    const planner::op& o = g.op_at(s.op);
    const std::span<const std::byte> bytes = e.buffer_bytes(s.outputs[0]);
    const planner::storage& map = g.at(o.outputs[0].storage);
    const auto size = static_cast<std::size_t>(map.bytes(g.batch));
    std::vector<std::int64_t> shape{g.batch};
    shape.insert(shape.end(), map.shape.begin(), map.shape.end());
    write_file((std::filesystem::path(folder) / file_of(o.name)).string(),
               std::string(reinterpret_cast<const char*>(bytes.data()), size));
    maps.push_back(
        {{"name", o.name}, {"op", planner::to_string(o.kind)}, {"shape", shape}, {"file", file_of(o.name)}});
  };
  image_batch batch;
  source.fill(t.steps(), options.batch, options.seed, batch);
  e.gradient_step(batch.images, batch.labels, t.steps());
  e.after_step = nullptr;
  nlohmann::ordered_json index;
  index["network"] = g.name;
  index["batch"] = g.batch;
  index["steps"] = t.steps();
  index["seed"] = options.seed;
  index["data"] = source.description();
  index["maps"] = std::move(maps);
  const auto count = static_cast<int>(index["maps"].size());
  write_file((std::filesystem::path(folder) / "activations.json").string(), index.dump(2) + "\n");
  return count;
}

}  // namespace stash::tools
