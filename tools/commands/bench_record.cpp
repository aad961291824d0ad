// SPDX-License-Identifier: Apache-2.0
#include "commands/bench_record.hpp"

#include <nlohmann/json.hpp>

#include "bench/cases/machine.hpp"
#include "stash/cpu.hpp"
#include "stash/version.hpp"

namespace stash::tools {

nlohmann::ordered_json bench_json(const bench_record& record) {
  nlohmann::ordered_json j;
  j["format"] = "stash.bench";
  j["command"] = record.command;
  j["stash"] = STASH_VERSION_STRING;
  j["commit"] = bench::source_commit();
  j["compiler"] = bench::compiler();
  j["processor"] = bench::processor_model();
  j["cpu_target"] = cpu_target();
  j["threads"] = record.threads;
  if (!record.device.empty()) j["device"] = nlohmann::ordered_json::parse(record.device_facts);
  auto& lines = j["lines"] = nlohmann::ordered_json::array();
  for (const bench_figures& f : record.lines) {
    auto& line = lines.emplace_back();
    line["name"] = f.name;
    line["dense_bytes"] = f.dense_bytes;
    line["seconds"] = f.seconds;
    line["bytes_per_second"] = static_cast<double>(f.dense_bytes) / f.seconds;
    if (f.copy_share > 0) line["copy_share"] = f.copy_share;
    if (f.copy_share_low > 0) {
      line["copy_share_quartiles"] = {f.copy_share_low, f.copy_share_high};
      line["copy_variation"] = f.copy_variation;
    }
    if (f.ratio > 0) line["ratio"] = f.ratio;
    if (f.one_call_speed > 0) line["one_call_speedup"] = f.one_call_speed;
    line["rounds"] = f.rounds;
  }
  for (const auto& [name, why] : record.not_run)
    j["not_run"].push_back({{"name", name}, {"why", why}});
  return j;
}

}  // namespace stash::tools
