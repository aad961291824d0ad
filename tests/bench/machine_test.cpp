// SPDX-License-Identifier: Apache-2.0
#include "bench/cases/machine.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace stash::bench {
namespace {

std::string line_of(const std::vector<const char*>& words) {
  return command_line("gpu_bench", static_cast<int>(words.size()), words.data());
}

TEST(bench_command_line, holds_no_folders) {
  EXPECT_EQ(line_of({"/some/where/gpu_bench", "--json", "/tmp/x/result.json", "--svg=/tmp/x/plot.svg"}),
            "gpu_bench --json result.json --svg=plot.svg");
  EXPECT_EQ(line_of({"./gpu_bench", "/a", "/a/b/"}), "gpu_bench a b");
}

TEST(bench_command_line, keeps_what_is_no_absolute_path) {
  EXPECT_EQ(line_of({"./gpu_bench", "--filter=^a/b", "bench/results/x.json", "--threads=2", "", "/"}),
            "gpu_bench --filter=^a/b bench/results/x.json --threads=2  /");
  EXPECT_EQ(line_of({"./gpu_bench"}), "gpu_bench");
  EXPECT_EQ(line_of({}), "gpu_bench");
}

}  // namespace
}  // namespace stash::bench
