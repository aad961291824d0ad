// SPDX-License-Identifier: Apache-2.0
// Every case runs and says what it moves; nothing here looks at a clock.

#include "bench/cases/cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace stash::bench {
namespace {

TEST(bench_cases, every_case_runs_more_than_once_on_every_input) {
  constexpr std::int64_t smallest = 64 << 10;
  for (const bench_line& line : all_lines(false)) {
    if (line.bytes != smallest && line.what->sizes.empty()) continue;
    SCOPED_TRACE(line.name());
    const prepared_call call = line.prepare({});
    call.run();
    call.run();
    if (call.one_call) call.one_call();
    // The dense map is read or written by all of them.
    EXPECT_GE(call.moved_bytes, line.bytes);
    EXPECT_LE(call.moved_bytes, 3 * line.bytes);
    EXPECT_LE(call.encoded_bytes, line.bytes);
    EXPECT_EQ(call.one_call != nullptr, !line.what->sizes.empty());
  }
}

TEST(bench_cases, stashes_have_the_sizes_of_the_format_page) {
  for (const bench_line& line : all_lines(false)) {
    if (line.bytes != 64 << 10) continue;
    const std::string& name = line.what->name;
    const std::int64_t bits = name == "encode/sign_mask" || name == "relu_backward/sign_mask" ? 1
                              : name == "encode/fp8" || name == "decode/fp8"                  ? 8
                              : name == "encode/fp16"                                         ? 16
                              : name == "encode/raw"                                          ? 32
                                                                                              : 0;
    if (bits == 0) continue;
    EXPECT_EQ(line.prepare({}).encoded_bytes, line.bytes / 32 * bits) << line.name();
  }
}

TEST(bench_cases, names_are_unique_and_sizes_those_that_were_asked_for) {
  std::set<std::string> names;
  for (const bool large : {false, true}) {
    for (const bench_line& line : all_lines(large)) {
      EXPECT_TRUE(names.insert(line.name()).second) << line.name();
      EXPECT_EQ(line.bytes >= 256 << 20, large) << line.name();
    }
  }
  EXPECT_TRUE(names.contains("encode/bitmap/iid_0.5/64KiB"));
  EXPECT_TRUE(names.contains("relu_max_pool_backward/relu_pool/clustered_0.5/64MiB"));
  EXPECT_TRUE(names.contains("encode_batch_of_32/csr/dead_channels_0.5/8MiB"));
  EXPECT_TRUE(names.contains("decode/csr/iid_0.2/1GiB"));
}

TEST(bench_cases, selection_is_a_part_of_the_whole_that_names_every_layer) {
  std::set<std::string> all, selected, layers, selected_layers;
  const auto layer = [](const std::string& name) { return name.substr(0, name.find('/')); };
  for (const bench_line& line : all_lines(false)) {
    all.insert(line.name());
    layers.insert(layer(line.name()));
  }
  for (const bench_line& line : selected_lines()) {
    selected.insert(line.name());
    selected_layers.insert(layer(line.name()));
  }
  EXPECT_TRUE(std::includes(all.begin(), all.end(), selected.begin(), selected.end()));
  EXPECT_LT(selected.size(), all.size() / 5);
  EXPECT_EQ(layers, selected_layers);
}

TEST(bench_cases, sizes_are_written_in_the_largest_unit_that_is_whole) {
  EXPECT_EQ(size_name(64 << 10), "64KiB");
  EXPECT_EQ(size_name(1536 << 10), "1536KiB");
  EXPECT_EQ(size_name(1 << 20), "1MiB");
  EXPECT_EQ(size_name(1 << 30), "1GiB");
}

}  // namespace
}  // namespace stash::bench
