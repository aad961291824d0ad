// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Tests that run once for each pair of encoding and type.

#include <gtest/gtest.h>

#include "format/tensor_generator.hpp"

namespace stash::test {

/// Tests of one pair.
class random_pair : public ::testing::TestWithParam<pair_under_test> {
 protected:
  encoding random_form(generator& random) { return test::random_form(GetParam(), random); }
  bool is_mask() const { return test::is_mask(GetParam()); }
  bool is_sparse() const { return test::is_sparse(GetParam()); }
};

inline std::string name_of_pair(const ::testing::TestParamInfo<pair_under_test>& tested) {
  return name_of(tested.param);
}

}  // namespace stash::test
