#include "stash/cpu.hpp"

#include <gtest/gtest.h>

#include "stash/error.hpp"

namespace stash {
namespace {

TEST(cpu_target, is_one_of_the_list) {
  const std::vector<std::string> all = cpu_targets();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back(), "scalar");
  EXPECT_EQ(cpu_target(), all.front());
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
