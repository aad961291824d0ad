// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Ids as tests write them: 3_storage, 1_op.

#include "planner/plan.hpp"

namespace stash::planner {

constexpr storage_id operator""_storage(unsigned long long number) {
  return storage_id(number);
}
constexpr op_id operator""_op(unsigned long long number) {
  return op_id(number);
}
constexpr buffer_id operator""_buffer(unsigned long long number) {
  return buffer_id(number);
}
constexpr recipe_id operator""_recipe(unsigned long long number) {
  return recipe_id(number);
}

}  // namespace stash::planner
