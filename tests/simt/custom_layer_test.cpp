// SPDX-License-Identifier: Apache-2.0
// The example for a GPU, with the emulator as its device: it waits after its steps and nowhere else.

#include <gtest/gtest.h>

#include <cstdlib>

#include "simt/device_memory.hpp"

int custom_layer_main();

namespace {

TEST(custom_layer, waits_for_what_it_asks_after_each_step) {
  const simt::device_calls before = simt::calls_so_far();
  const std::size_t blocks = simt::blocks_in_use();
  EXPECT_EQ(custom_layer_main(), EXIT_SUCCESS);
  const simt::device_calls after = simt::calls_so_far();
  // Four steps, of which one is done twice. Each asks what became of x and of the code.
  constexpr std::size_t answers = 2 * 5;
  EXPECT_EQ(after.copies - before.copies, answers);
  // A query waits for its answer when it is read, and again when it ends.
  EXPECT_EQ(after.waits - before.waits, 2 * answers);
  // Where answers arrive is kept.
  EXPECT_EQ(simt::blocks_in_use(), blocks + 1);
}

}  // namespace
