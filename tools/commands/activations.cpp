// SPDX-License-Identifier: Apache-2.0
#include "commands/activations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "files/files.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

static_assert(std::endian::native == std::endian::little, "the files hold little-endian numbers");

// A slice of a concatenation is not whole after its op.
bool puts_out_relu(const planner::op& o) {
  if (o.outputs.empty() || !o.outputs[0].whole()) return false;
  return o.kind == planner::op_kind::relu || o.kind == planner::op_kind::relu_max_pool ||
         (o.kind == planner::op_kind::batch_norm && o.attributes.fused_relu);
}

// What the plan keeps of a storage for the backward pass.
std::string kept_form(const planner::plan& p, planner::storage_id s) {
  const planner::stash_choice& c = p.choices.at(s);
  return c.kind == planner::stash_kind::encoded ? to_string(c.stored)
                                                : std::string(planner::to_string(c.kind));
}

// The same of what a joint op pools: its code or index, or the map itself.
std::string kept_of_pooled(const planner::plan& p, const planner::op& o) {
  for (const planner::storage_id s : o.optional_outputs) {
    if (p.choices.at(s).kind != planner::stash_kind::none) return kept_form(p, s);
  }
  return kept_form(p, o.inputs[0].storage);
}

// Writes maps into a folder, one file each, and describes them.
class map_writer {
 public:
  map_writer(const std::string& folder, const planner::graph& g) : folder_(folder), graph_(g) {}

  nlohmann::ordered_json write(const std::string& name, planner::op_kind op, planner::storage_id storage,
                               std::span<const float> values, const std::string& kept) const {
    std::string file = name + ".f32";
    std::replace(file.begin(), file.end(), '/', '.');
    write_file((folder_ / file).string(),
               std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
    return {{"name", name},
            {"op", planner::to_string(op)},
            {"shape", shape_of(storage)},
            {"file", file},
            {"kept", kept}};
  }

  std::vector<std::int64_t> shape_of(planner::storage_id s) const {
    std::vector<std::int64_t> shape{graph_.batch};
    shape.insert(shape.end(), graph_.at(s).shape.begin(), graph_.at(s).shape.end());
    return shape;
  }

 private:
  std::filesystem::path folder_;
  const planner::graph& graph_;
};

}  // namespace

made_folder::made_folder(const std::string& path) {
  std::error_code failed;
  for (std::filesystem::path at = path; !at.empty() && !std::filesystem::exists(at, failed);
       at = at.parent_path())
    made_.push_back(at);
  std::filesystem::create_directories(path, failed);
  if (failed)
    throw error(errc::io_failure,
                fmt::format("{}: expected a folder or a path for one, got: {}", path, failed.message()));
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
  const map_writer files(folder, g);
  // Right after its op an operand is whole and dense, whatever the plan does with it later.
  e.after_step = [&](std::size_t i) {
    const planner::step& s = e.current_plan().steps[i];
    if (s.kind != planner::step_kind::run || !puts_out_relu(g.op_at(s.op))) return;
    const planner::op& o = g.op_at(s.op);
    const auto values = [&](planner::storage_id storage, planner::buffer_id buffer) {
      return std::span(reinterpret_cast<const float*>(e.buffer_bytes(buffer).data()),
                       static_cast<std::size_t>(g.at(storage).bytes(g.batch)) / sizeof(float));
    };
    if (o.kind == planner::op_kind::relu_max_pool && o.inputs[0].whole()) {
      // The joint op never writes what its ReLU puts out; other frameworks keep it.
      const std::span<const float> x = values(o.inputs[0].storage, s.inputs[0]);
      std::vector<float> rectified(x.size());
      std::ranges::transform(x, rectified.begin(), [](float v) { return v > 0 ? v : 0.0F; });
      nlohmann::ordered_json map = files.write(o.name + "/relu", planner::op_kind::relu, o.inputs[0].storage,
                                               rectified, kept_of_pooled(e.current_plan(), o));
      const planner::op_attributes& a = o.attributes;
      map["pooled_by"] = {a.kernel_h, a.kernel_w, a.stride_h, a.stride_w, a.pad_top, a.pad_left};
      map["pooled_shape"] = files.shape_of(o.outputs[0].storage);
      maps.push_back(std::move(map));
    }
    const planner::storage_id y = o.outputs[0].storage;
    maps.push_back(files.write(o.name, o.kind, y, values(y, s.outputs[0]), kept_form(e.current_plan(), y)));
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
