// SPDX-License-Identifier: Apache-2.0
// gpu_check: holds the device back end against the CPU and the reference of docs/format.md. Linked with the
// CUDA kernels it needs a GPU; linked with the emulated ones it shows that the checks themselves work.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/cases/machine.hpp"
#include "bench/gpu/records.hpp"
#include "gpu/checks.hpp"

namespace stash::gpu {
namespace {

constexpr int exit_failed = 1, exit_no_device = 77;

struct arguments {
  bool smoke = false, list = false;
  std::string filter, json;
  int tensors = 0;
};

check_setup setup_of(const arguments& options) {
  check_setup setup;
  if (is_emulated()) {
    setup.tensors = 8;
    setup.crowded_elements = 60013;
    setup.large_elements = 70001;
  }
  if (options.smoke) {
    setup.tensors = 2;
    setup.mode = buffer_mode::exact;
    setup.crowded_elements = 60013;
    setup.large_elements = 0;
  }
  if (options.tensors > 0) setup.tensors = options.tensors;
  return setup;
}

std::vector<named_check> checks_of(const arguments& options) {
  const check_setup setup = setup_of(options);
  std::vector<named_check> chosen;
  for (const auto topic :
       {encoding_checks, crowded_checks, layer_checks, pool_checks, dropout_checks, stream_checks,
        graph_checks, graph_layer_checks, swap_checks, handle_checks, large_checks, large_call_checks}) {
    for (named_check& check : topic(setup)) {
      if (check.name.find(options.filter) != std::string::npos) chosen.push_back(std::move(check));
    }
  }
  return chosen;
}

std::string device_error() {
  try {
    wait_for_device();
    return {};
  } catch (const failure& problem) {
    return problem.what();
  }
}

int run(const arguments& options, const std::string& command) {
  const std::vector<named_check> checks = checks_of(options);
  if (options.list) {
    for (const named_check& check : checks)
      fmt::print("{}\n", check.name);
    return 0;
  }
  const std::string reason = why_no_device();
  // Asked now: after its loss a device answers no more.
  const device_facts found = reason.empty() ? facts() : device_facts{};
  nlohmann::ordered_json start = record_start("stash.gpu_check", command);
  if (reason.empty()) start["device"] = json_of(found);
  std::vector<check_result> results;
  // After every check: a kernel that hangs takes the program with it, but not what was found before.
  const auto write = [&] {
    const std::string running = results.size() < checks.size() ? checks[results.size()].name : "";
    write_results(options.json, start, "checks", json_of(results), running);
  };
  if (reason.empty()) {
    fmt::print("{}\n", text_of(found));
    write();
    run_checks(checks, device_error, [&](const check_result& r) {
      results.push_back(r);
      fmt::print("{}\n", line_of(r));
      std::fflush(stdout);
      write();
    });
  } else {
    for (const named_check& check : checks)
      results.push_back({check.name, outcome::not_run, reason});
    fmt::print("{}\n", reason);
    write();
  }
  fmt::print("{}\n", summary_of(results));
  if (!reason.empty()) return exit_no_device;
  for (const check_result& r : results) {
    if (r.what == outcome::failed) return exit_failed;
  }
  return 0;
}

}  // namespace
}  // namespace stash::gpu

int main(int argc, char** argv) {
  stash::gpu::arguments options;
  CLI::App app(
      "Holds the device back end against the CPU. Ends with 1 if a check failed, 77 without a device.");
  app.add_flag("--smoke", options.smoke, "few inputs in buffers without guards: for compute-sanitizer");
  app.add_flag("--list", options.list, "only print the names of the checks");
  app.add_option("--filter", options.filter, "only checks with this text in their name");
  app.add_option("--tensors", options.tensors, "random inputs for each pair of encoding and type")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "file to write the results to");
  CLI11_PARSE(app, argc, argv);
  try {
    return stash::gpu::run(options, stash::bench::command_line("gpu_check", argc, argv));
  } catch (const std::exception& problem) {
    fmt::print(stderr, "gpu_check: {}\n", problem.what());
    return stash::gpu::exit_failed;
  }
}
