// SPDX-License-Identifier: Apache-2.0
// Messages of C++ functions in the words of C functions.

#include "c_api/c_message.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

using namespace stash::c_api;

std::string message(std::string_view text, const argument_names& names = {}, std::size_t capacity = 200) {
  std::string to(capacity, '#');
  write_c_message(to, "stash_do", text, names);
  return to.c_str();
}

TEST(c_messages, functions_are_those_that_were_called) {
  EXPECT_EQ(message("encode: input: expected data, got null"), "stash_do: input: expected data, got null");
  EXPECT_EQ(message("stashed_tensor::restore: output: expected u8, got f32"),
            "stash_do: output: expected u8, got f32");
  EXPECT_EQ(message("stash_do: x.y: expected 0, got 1"), "stash_do: x.y: expected 0, got 1");
  EXPECT_EQ(message("encode: STASH_CPU_TARGET: expected one, got none", {{}, "handle"}),
            "stash_do: STASH_CPU_TARGET: expected one, got none");
  EXPECT_EQ(message("memory_resource::allocate: bytes: expected memory for 3 bytes aligned to 1, got none"),
            "stash_do: memory: expected memory for 3 bytes aligned to 1, got none");
}

TEST(c_messages, texts_of_another_form_stay_whole) {
  for (const char* const text :
       {"", ":", ": ", "::", "some words: and more", "word", "word:", "a::: b", "x:y"})
    EXPECT_EQ(message(text), std::string("stash_do: ") + text);
}

constexpr renamed known[] = {{"out", "output"}, {"this", "handle"}, {"context"}};

TEST(c_messages, arguments_have_their_names_in_c) {
  const argument_names names{known};
  EXPECT_EQ(message("f: out: expected 1, got 0", names), "stash_do: output: expected 1, got 0");
  EXPECT_EQ(message("f: out.type: expected 1, got 0", names), "stash_do: output.type: expected 1, got 0");
  EXPECT_EQ(message("f: outer: expected out, got out", names), "stash_do: outer: expected out, got out");
  EXPECT_EQ(message("f: x: expected memory apart from out.y, got z", names),
            "stash_do: x: expected memory apart from output.y, got z");
}

TEST(c_messages, items_of_a_batch) {
  const argument_names names{known};
  EXPECT_EQ(message("f: items[12]: out: expected 1, got 0", names),
            "stash_do: items[12].output: expected 1, got 0");
  EXPECT_EQ(message("f: items[0]: x: expected 1, got 0", names), "stash_do: items[0].x: expected 1, got 0");
  EXPECT_EQ(message("f: items[0]: context: expected 1, got 0", names),
            "stash_do: context: expected 1, got 0");
  EXPECT_EQ(message("f: items[0]: expected 1, got 0", names), "stash_do: items[0]: expected 1, got 0");
  EXPECT_EQ(message("f: items[1]: out: expected memory apart from items[0].out.z, got y", names),
            "stash_do: items[1].output: expected memory apart from items[0].output.z, got y");
  EXPECT_EQ(message("f: items[", names), "stash_do: items[");
}

TEST(c_messages, names_of_tensors_are_no_arguments) {
  const argument_names names{known, "handle"};
  EXPECT_EQ(message("f: this: expected 1, got 0", names), "stash_do: handle: expected 1, got 0");
  EXPECT_EQ(message("f: context: expected 1, got 0", names), "stash_do: context: expected 1, got 0");
  EXPECT_EQ(message("f: conv1: expected 1, got 0", names), "stash_do: handle 'conv1': expected 1, got 0");
  EXPECT_EQ(message("f: conv1: out: expected 1, got 0", names),
            "stash_do: handle 'conv1': out: expected 1, got 0");
}

TEST(c_messages, what_does_not_fit_is_cut) {
  const std::string text = "encode: input: expected " + std::string(300, 'x');
  const std::string whole = "stash_do: input: expected " + std::string(300, 'x');
  for (const std::size_t capacity : {std::size_t{1}, std::size_t{5}, std::size_t{11}, std::size_t{100}})
    EXPECT_EQ(message(text, {known}, capacity), whole.substr(0, capacity - 1)) << capacity;
}

}  // namespace
