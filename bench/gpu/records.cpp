// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/records.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/cases/machine.hpp"
#include "stash/version.hpp"

namespace stash::gpu {

std::string text_of(const device_facts& f) {
  return fmt::format(
      "{}, compute capability {}, {} multiprocessors, {:.1f} GiB, L2 {:.0f} MiB, driver {}, runtime {}, "
      "built for {}",
      f.name, f.compute_capability, f.multiprocessors, static_cast<double>(f.memory_bytes) / (1 << 30),
      static_cast<double>(f.l2_bytes) / (1 << 20), f.driver, f.runtime, f.built_for);
}

nlohmann::ordered_json json_of(const device_facts& f) {
  return {{"name", f.name},
          {"compute_capability", f.compute_capability},
          {"multiprocessors", f.multiprocessors},
          {"memory_bytes", f.memory_bytes},
          {"l2_bytes", f.l2_bytes},
          {"ecc", f.ecc},
          {"cuda_driver", f.driver},
          {"cuda_runtime", f.runtime},
          {"built_for", f.built_for}};
}

nlohmann::ordered_json record_start(const std::string& format, const std::string& command) {
  return {{"format", format},
          {"command", command},
          {"stash", STASH_VERSION_STRING},
          {"commit", bench::source_commit()},
          {"compiler", bench::compiler()}};
}

void write_json(const std::string& path, const nlohmann::ordered_json& record) {
  std::error_code problem;
  // A device like /dev/stdout would be replaced as well.
  if (std::filesystem::exists(path, problem) && !std::filesystem::is_regular_file(path, problem))
    throw std::runtime_error(fmt::format("cannot write {}: expected an ordinary file", path));
  const std::string unfinished = path + ".new";
  std::ofstream out(unfinished);
  // What a driver says need not be UTF-8.
  out << record.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
  out.close();
  if (!out) throw std::runtime_error(fmt::format("cannot write {}", unfinished));
  std::filesystem::rename(unfinished, path, problem);
  if (problem) throw std::runtime_error(fmt::format("cannot write {}: {}", path, problem.message()));
}

void write_results(const std::string& path, const nlohmann::ordered_json& start, const std::string& list,
                   const nlohmann::ordered_json& results, const std::string& running) {
  if (path.empty()) return;
  nlohmann::ordered_json record = start;
  record["complete"] = running.empty();
  if (!running.empty()) record["running"] = running;
  record[list] = results;
  write_json(path, record);
}

}  // namespace stash::gpu
