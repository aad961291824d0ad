// SPDX-License-Identifier: Apache-2.0
// Public instances, where the folder planner/layout lies next to the one that STASH_DATA names; they do not
// come with the project.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/layout/layout.hpp"
#include "planner/layout/layout_checker.hpp"
#include "planner/layout/layout_csv.hpp"

namespace stash::planner {
namespace {

std::vector<std::filesystem::path> files_like(const std::string& start) {
  std::vector<std::filesystem::path> found;
  const char* const data = std::getenv("STASH_DATA");
  if (data == nullptr) return found;
  const std::filesystem::path folder = std::filesystem::path(data) / ".." / "planner" / "layout";
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
    if (entry.path().filename().string().rfind(start, 0) == 0) found.push_back(entry.path());
  }
  return found;
}

layout_problem read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return {read_layout_csv(text, path.string()).blocks, 1, {}};
}

/// The same work on every machine, so that speed is not what decides.
layout_solution solve(const layout_problem& problem) {
  layout_limits limits;
  limits.work = 10'000'000'000;
  return solve_layout(problem, limits);
}

TEST(layout_instances, accelerator_blocks_fit_one_mebibyte) {
  const auto files = files_like("minimalloc_");
  if (files.empty()) GTEST_SKIP() << "no folder planner/layout next to STASH_DATA";
  for (const auto& file : files) {
    layout_problem problem = read(file);
    problem.capacity = 1 << 20;
    const layout_solution s = solve(problem);
    EXPECT_EQ(s.status, layout_status::fits) << file;
    EXPECT_TRUE(check_layout(problem, s.offsets).empty()) << file;
  }
}

TEST(layout_instances, training_steps_end_at_max_live) {
  std::vector<std::filesystem::path> files = files_like("somas_");
  for (const auto& file : files_like("iopddl_G"))
    files.push_back(file);
  if (files.empty()) GTEST_SKIP() << "no folder planner/layout next to STASH_DATA";
  for (const auto& file : files) {
    const layout_problem problem = read(file);
    const layout_solution s = solve(problem);
    EXPECT_EQ(s.height, peak_of(problem).bytes) << file;
    EXPECT_TRUE(s.proven_optimal) << file;
    EXPECT_TRUE(check_layout(problem, s.offsets).empty()) << file;
  }
}

}  // namespace
}  // namespace stash::planner
