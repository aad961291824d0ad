// SPDX-License-Identifier: Apache-2.0
// The tables of Meng et al. and of TFLMS: what fits into a memory at most a tenth slower.

#include "reproduce/reproduce_rows.hpp"

namespace stash::tools {

using planner::policy;

namespace {

constexpr double slower = 0.1;

}  // namespace

void meng_table(const reproduction& r) {
  for (const double share : {1.0, 0.6, 1.4}) {
    const planner::machine m = at_rate("m40_12gb", share);
    const bool own = share == 1.0;
    std::vector<growth_row> rows{{policy::lossless, "144 -> 664 (4.61x)", own ? 4.6 : no_target},
                                 {policy::fp8, "-", own ? 8.0 : no_target}};
    if (own) rows.push_back({policy::swap_only, "144 -> 664 (4.61x), their rule", no_target});
    batch_rows(r, {"resnet50", policy::none, m, 12 * gib, slower, 0, 8}, rows);
    rows = {{policy::lossless, "208 -> 548 (2.63x)", own ? 2.6 : no_target}};
    if (own) {
      rows.push_back({policy::fp8, "-", no_target});
      rows.push_back({policy::swap_only, "208 -> 548 (2.63x), their rule", no_target});
    }
    batch_rows(r, {"inception_v3", policy::none, m, 12 * gib, slower, 0, 8}, rows);
  }
  const planner::machine m = planner::find_machine("m40_12gb");
  network_size batch32, fused32;
  batch32.batch = fused32.batch = 32;
  fused32.fused_update = true;
  const char* const r1001 = "out of memory -> 5979 MB, weights and workspace not counted";
  const char* const r2000 = "out of memory -> 10650 MB, weights and workspace not counted";
  for (const fixed_case& c : {
           fixed_case{"resnet101", batch32, policy::lossless, 2'660'000'000, "5815 -> 2660 MB"},
           fixed_case{"resnet200", batch32, policy::lossless, 3'052'000'000, "10662 -> 3052 MB"},
           fixed_case{"resnet1001", batch32, policy::lossless, 5'400'000'000, r1001, 1.0},
           fixed_case{"resnet1001", fused32, policy::lossless, 3'400'000'000, r1001, 1.0, true},
           fixed_case{"resnet2000", batch32, policy::lossless, 10'000'000'000, r2000, 1.0},
           fixed_case{"resnet2000", fused32, policy::lossless, 6'400'000'000, r2000, 1.0, true},
       })
    fixed_row(r, m, slower, c);
  network_size sentences;
  sentences.steps = 400;
  sentences.batch = 60;
  fixed_row(r, m, slower, {"seq2seq", sentences, policy::none, 12 * gib, "batch 2 fits"});
  fixed_row(r, m, slower,
            {"seq2seq", sentences, policy::lossless, 12 * gib, "batch 2 -> 60 at 400 steps", 1.0});
  sentences.batch = 190;
  sentences.loss_chunk = 20;
  fixed_row(r, m, slower,
            {"seq2seq", sentences, policy::lossless, 12 * gib, "batch 2 -> 60 at 400 steps", 1.0, true});
}

void lms_table(const reproduction& r) {
  const planner::machine m = planner::find_machine("v100_16gb_nvlink2");
  batch_rows(r, {"resnet50", policy::none, m, 16 * gib, slower, 0, 8},
             {{policy::lossless, "4.9x", 4.9},
              {policy::fp8, "-", no_target},
              {policy::lms, "4.9x, their rule", no_target}});
  network_size cube;
  cube.batch = 1;
  cube.side = 192;
  fixed_row(r, m, slower, {"unet3d", cube, policy::lossless, 16 * gib, "192^3 without tiling", 1.0});
  volume_rows(r, {"unet3d", policy::none, m, 16 * gib, slower, 1, 16},
              {{policy::lossless, "5.6x the resolution, another network", 2.9},
               {policy::fp8, "-", no_target},
               {policy::lms, "5.6x the resolution, their rule", no_target}});
}

}  // namespace stash::tools
