// SPDX-License-Identifier: Apache-2.0
#include "stash/cpu.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "stash/encoding.hpp"
#include "stash/error.hpp"

namespace stash {
namespace {

TEST(cpu_target, is_one_of_the_list) {
  const std::vector<std::string> all = cpu_targets();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back(), "scalar");
  EXPECT_EQ(cpu_target(), all.front());
}

// Run by encoders_cpu_target_unknown: what the environment says is read once.
TEST(cpu_target, an_unknown_name_in_the_environment_is_told_by_the_call_that_computes) {
  const char* setting = std::getenv("STASH_CPU_TARGET");
  if (setting == nullptr || std::string_view(setting) != "mmx") GTEST_SKIP() << "needs STASH_CPU_TARGET=mmx";
  const auto expect_refusal = [](std::string_view function, const auto& call) {
    try {
      call();
      ADD_FAILURE() << function;
    } catch (const error& wrong) {
      EXPECT_EQ(wrong.code(), errc::invalid_argument);
      const std::string_view text = wrong.what();
      EXPECT_TRUE(text.starts_with(std::string(function) + ": STASH_CPU_TARGET: expected one of ")) << text;
      EXPECT_TRUE(text.ends_with("scalar, got \"mmx\"")) << text;
    }
  };
  const float value = 1;
  const const_tensor_view input{&value, dtype::f32, memory_space::host, {1}, 0};
  expect_refusal("cpu_target", [] { cpu_target(); });
  expect_refusal("encoded_bytes_exact", [&] { encoded_bytes_exact(parse_encoding("csr"), input, {}); });
  set_cpu_target("scalar");
  EXPECT_EQ(encoded_bytes_exact(parse_encoding("sign_mask"), input, {}), 16U);
}

TEST(cpu_target, can_be_set) {
  const std::string before = cpu_target();
  for (const std::string& name : cpu_targets()) {
    set_cpu_target(name);
    EXPECT_EQ(cpu_target(), name);
  }
  set_cpu_target(before);
  for (const char* unknown : {"", "AVX2", "avx", "scalar ", "mmx"}) {
    try {
      set_cpu_target(unknown);
      ADD_FAILURE() << unknown;
    } catch (const error& wrong) {
      EXPECT_EQ(wrong.code(), errc::invalid_argument);
      EXPECT_NE(std::string(wrong.what()).find("set_cpu_target: name: expected one of"), std::string::npos);
      EXPECT_NE(std::string(wrong.what()).find("scalar"), std::string::npos);
    }
    EXPECT_EQ(cpu_target(), before);
  }
}

}  // namespace
}  // namespace stash
