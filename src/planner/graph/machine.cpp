// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/machine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "encoders/message.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

machine gpu(std::string name, std::string description, std::int64_t memory, double flops, double memory_rate,
            double out_rate, double in_rate) {
  machine m;
  m.name = std::move(name);
  m.description = std::move(description);
  m.memory_bytes = memory;
  m.flops_per_second = flops;
  m.memory_bytes_per_second = memory_rate;
  m.op_latency_seconds = 5e-6;
  m.out_bytes_per_second = out_rate;
  m.in_bytes_per_second = in_rate;
  m.link_latency_seconds = 10e-6;
  m.contention = 0.9;
  return m;
}

// op: max(5 us, 2 x bytes produced / (0.8 memory rate)), 14 times that for convolution and matrix products;
// codec: 1.5 x dense bytes / memory rate.
machine reference(std::string name, std::string description, double memory_rate, double link_rate) {
  machine m = gpu(std::move(name), std::move(description), 0, 0.0, memory_rate, link_rate, link_rate);
  m.link_latency_seconds = 0.0;
  m.contention = 1.0;
  m.pinned = true;
  m.produced_factor = 2.0 / 0.8;
  m.compute_factor = 14.0;
  m.codec_factor = 1.5;
  return m;
}

std::vector<machine> make_machines() {
  std::vector<machine> list;
  list.push_back(gpu("h200",
                     "H200 SXM: 4.8 TB/s and PCIe 5 from data sheets; 60 % of TF32 peak assumed sustained",
                     140 * gib, 250e12, 4.2e12, 50e9, 50e9));
  list.push_back(gpu("a100",
                     "A100 SXM 80 GB: 2.04 TB/s and PCIe 4 from data sheets; 60 % of TF32 peak assumed",
                     79 * gib, 90e12, 1.75e12, 22e9, 24e9));
  list.push_back(gpu("rtx", "RTX 2080 Ti: 616 GB/s and PCIe 3 from data sheets; 75 % of fp32 peak assumed",
                     11 * gib, 10e12, 0.52e12, 12e9, 12e9));
  machine m40 =
      gpu("m40_12gb", "Tesla M40 with PCIe 3: pinned at 3.1 TFLOP/s sustained, 230 GB/s, 12 GB/s each way",
          12 * gib, 3.1e12, 230e9, 12e9, 12e9);
  m40.contention = 1.0;
  list.push_back(m40);
  machine v100 =
      gpu("v100_16gb_nvlink2", "V100 on POWER9: pinned at 9.4 TFLOP/s sustained, 75 GB/s each way; 780 GB/s",
          16 * gib, 9.4e12, 780e9, 75e9, 75e9);
  v100.contention = 1.0;
  list.push_back(v100);
  list.push_back(gpu("k40_12gb",
                     "Tesla K40m with PCIe 3: 288 GB/s from data sheets, 75 % of it and 2.4 TFLOP/s assumed",
                     12 * gib, 2.4e12, 216e9, 10e9, 10e9));
  machine cpu;
  cpu.name = "cpu";
  cpu.description = "two cores of a server processor; measure your own with stash calibrate";
  cpu.flops_per_second = 80e9;
  cpu.memory_bytes_per_second = 15e9;
  cpu.op_latency_seconds = 2e-6;
  cpu.out_bytes_per_second = cpu.in_bytes_per_second = 7e9;
  cpu.contention = 0.6;
  list.push_back(cpu);
  list.push_back(reference("ref_h200", "pinned for comparison: 4.8 TB/s, 50 GB/s each way", 4.8e12, 50e9));
  list.push_back(reference("ref_rtx", "pinned for comparison: 616 GB/s, 12 GB/s each way", 616e9, 12e9));
  return list;
}

}  // namespace

const std::vector<machine>& known_machines() {
  static const std::vector<machine> list = make_machines();
  return list;
}

const machine& find_machine(std::string_view name) {
  const auto& list = known_machines();
  const auto at = std::find_if(list.begin(), list.end(), [&](const machine& m) { return m.name == name; });
  if (at != list.end()) return *at;
  std::string names;
  for (const machine& m : list)
    names += (names.empty() ? "" : ", ") + m.name;
  throw error(errc::invalid_argument,
              fmt::format("find_machine: name: expected one of {}, got '{}'", names, shortened(name)));
}

}  // namespace stash::planner
