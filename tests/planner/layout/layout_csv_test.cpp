// SPDX-License-Identifier: Apache-2.0
// The CSV form of layout problems: what is read, what is refused and where, and that writing loses nothing.

#include "planner/layout/layout_csv.hpp"

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "stash/error.hpp"

namespace stash::planner {
namespace {

void expect_same(const layout_table& a, const layout_table& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.blocks, b.blocks);
  EXPECT_EQ(a.offsets, b.offsets);
}

std::string refusal(const std::string& text) {
  try {
    read_layout_csv(text, "file.csv");
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::bad_format);
    return e.what();
  }
  return "nothing";
}

TEST(layout_csv, reads_every_column) {
  const layout_table t = read_layout_csv(
      "id,lower,upper,size,alignment,hint,gaps,offset\n"
      "a,0,10,64,16,-1,,0\n"
      "b,-3,12,100,1,32,1-2 4-6@8:20,32\n",
      "x");
  EXPECT_EQ(t.ids, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(t.blocks.size(), 2U);
  EXPECT_EQ(t.blocks[0], (layout_block{0, 10, 64, 16}));
  EXPECT_EQ(t.blocks[1], (layout_block{-3, 12, 100, 1, 32, {{1, 2}, {4, 6, 8, 20}}}));
  EXPECT_EQ(t.offsets, (std::vector<std::int64_t>{0, 32}));
}

TEST(layout_csv, header_decides) {
  const layout_table plain = read_layout_csv("id,lower,upper,size\nx,2,5,7\n", "x");
  for (const char* text : {"buffer,start,upper,size\nx,2,5,7\n", "size,end,buffer_id,begin\n7,4,x,2",
                           "note,size,upper,id,lower\nhello,7,5,x,2\n",
                           " id , lower,\tupper ,size\r\n\r\n x , 2 ,5, 7 \r\n   \r\n",
                           "\"id\",\"lower\",\"upper\",\"size\"\n\"x\",\"2\",\"5\",\"7\"\n",
                           "\xEF\xBB\xBFid,lower,upper,size\rx,2,5,7\r",
                           "id,lower,upper,size,hint,alignment,gaps,offset\nx,2,5,7,,,,\n"})
    expect_same(read_layout_csv(text, "x"), plain);
  EXPECT_EQ(read_layout_csv("lower,upper,size\n0,1,2\n0,1,2\n", "x").ids,
            (std::vector<std::string>{"0", "1"}));
}

TEST(layout_csv, gaps_end_as_lifetimes_do) {
  const layout_table exclusive =
      read_layout_csv("id,lower,upper,size,gaps\nA,0,8,6,2-5 6-7@1:3\nB,2,5,6,\n", "x");
  EXPECT_EQ(exclusive.blocks[0], (layout_block{0, 8, 6, 1, {}, {{2, 5}, {6, 7, 1, 3}}}));
  // With an inclusive end of lifetimes, 6-6 is one moment. Windows are bytes and stay as they are.
  for (const char* text : {"id,start,end,size,gaps\nA,0,7,6,2-4 6-6@1:3\nB,2,4,6,\n",
                           "gaps,end,size,begin,id\n2-4 6-6@1:3,7,6,0,A\n,4,6,2,B\n",
                           "id,lower,end,size,gaps\nA,0,7,6,2-4 6-6@1:3\nB,2,4,6,\n"})
    expect_same(read_layout_csv(text, "x"), exclusive);
  expect_same(read_layout_csv("id,start,upper,size,gaps\nA,0,8,6,2-5 6-7@1:3\nB,2,5,6,\n", "x"), exclusive);
  expect_same(read_layout_csv(write_layout_csv(exclusive), "x"), exclusive);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::string largest = std::to_string(most - 1);
  const layout_table late =
      read_layout_csv("lower,end,size,gaps\n0," + largest + ",1,0-3 4-" + largest + "\n", "x");
  EXPECT_EQ(late.blocks[0], (layout_block{0, most, 1, 1, {}, {{0, 4}, {4, most}}}));
}

TEST(layout_csv, writes_what_it_reads) {
  layout_table t;
  t.ids = {"plain", "with, comma", "with \"quotes\"", "", " padded ", "two\nlines\r\n", "0"};
  for (std::size_t i = 0; i < t.ids.size(); ++i)
    t.blocks.push_back({static_cast<std::int64_t>(i) - 3, 20, static_cast<std::int64_t>(i) * 7});
  expect_same(read_layout_csv(write_layout_csv(t), "x"), t);
  EXPECT_EQ(write_layout_csv(t).substr(0, 20), "id,lower,upper,size\n");
  t.blocks[1].alignment = 24;
  t.blocks[2].fixed = 0;
  t.blocks[3].gaps = {{4, 5}, {1, 2, 3, 9}, {2, 3, 5, 5}};
  t.blocks[1].gaps = {{-2, -1}};
  t.offsets = {6, 5, 4, 3, 2, 1, 0};
  expect_same(read_layout_csv(write_layout_csv(t), "x"), t);
  const layout_table none = read_layout_csv("size,begin,end", "x");
  EXPECT_TRUE(none.blocks.empty());
  expect_same(read_layout_csv(write_layout_csv(none), "x"), none);
}

TEST(layout_csv, partial_offsets_are_no_offsets) {
  EXPECT_TRUE(read_layout_csv("lower,upper,size,offset\n0,1,2,0\n0,1,2,\n0,1,2,4\n", "x").offsets.empty());
  EXPECT_TRUE(read_layout_csv("lower,upper,size,offset\n0,1,2,-1\n", "x").offsets.empty());
}

TEST(layout_csv, says_what_is_wrong_and_where) {
  const std::string head = "id,lower,upper,size,alignment,hint,gaps\n";
  const std::string inclusive = "id,start,end,size,gaps\n";
  const struct {
    std::string text;
    std::string says;
  } cases[] = {
      {"", "line 1: expected a header"},
      {"\n\n", "expected a header"},
      {"id,upper,size\n", "expected a column 'lower'"},
      {"lower,size\n", "'upper' (exclusive) or 'end' (inclusive)"},
      {"lower,upper,end,size\n", "'upper' (exclusive) or 'end' (inclusive)"},
      {"lower,upper\n", "expected a column 'size'"},
      {"id,lower,begin,upper,size\n", "column 'begin': expected no second one"},
      {head + "a,0,1,2,1,-1\n", "line 2: expected 7 fields, got 6"},
      {head + "\na,0,1,2,1,-1,,\n", "line 3: expected 7 fields, got 8"},
      {head + "a,0,1,2,1,-1,\nb,x,1,2,1,-1,\n",
       "line 3: column 'lower': expected a whole number of 64 bits, got 'x'"},
      {head + "a,0,1,2.5,1,-1,\n", "column 'size': expected a whole number of 64 bits, got '2.5'"},
      {head + "a,0,,2,1,-1,\n", "column 'upper'"},
      {head + "a,0,9223372036854775808,2,1,-1,\n", "column 'upper'"},
      {head + "a,5,5,2,1,-1,\n", "column 'upper': expected more than 5, got '5'"},
      {"id,begin,end,size\na,5,4,1\n", "column 'end': expected at least 5, got '4'"},
      {"id,begin,end,size\na,5,9223372036854775807,1\n", "column 'end': expected a smaller number"},
      {head + "a,0,1,-2,1,-1,\n", "column 'size': expected at least 0"},
      {head + "a,0,1,2,0,-1,\n", "column 'alignment': expected at least 1"},
      {head + "a,0,1,2,1,-2,\n", "column 'hint': expected -1 (none) or at least 0"},
      {head + "a,0,9,2,1,-1,3\n", "column 'gaps': expected gaps a-b"},
      {head + "a,0,9,2,1,-1,3-4@1\n", "column 'gaps': expected gaps a-b"},
      {head + "a,0,9,2,1,-1,3-4@1:2:3\n", "column 'gaps': expected gaps a-b"},
      {head + "a,0,9,2,1,-1,3-10\n", "column 'gaps': expected gaps within [0, 9)"},
      {head + "a,0,9,2,1,-1,3-3\n", "column 'gaps': expected gaps within [0, 9)"},
      {inclusive + "a,0,9,2,3-10\n", "column 'gaps': expected gaps within [0, 9], with their last moments"},
      {inclusive + "a,2,9,2,1-3\n", "column 'gaps': expected gaps within [2, 9]"},
      {inclusive + "a,0,9,2,4-3\n", "column 'gaps': expected gaps within [0, 9]"},
      {inclusive + "a,0,9,2,3-9223372036854775807\n", "column 'gaps': expected gaps within [0, 9]"},
      {inclusive + "a,0,9,2,3-5 5-7\n", "column 'gaps': expected disjoint gaps"},
      {head + "a,0,9,2,1,-1,3-4@1:3\n", "column 'gaps': expected windows within [0, 2)"},
      {head + "a,0,9,2,1,-1,5-7 3-6\n", "column 'gaps': expected disjoint gaps"},
      {head + "\"a,0,1,2,1,-1,\n", "line 2: expected a closing quote"},
      {head + "\"a\"b,0,1,2,1,-1,\n", "line 2: expected a comma"},
      {head + "\"a\nb\",0,1,2,1,-1,\nc,0,?\x1b,2,1,-1,\n",
       "line 4: column 'upper': expected a whole number of 64 bits, got '?"
       "?'"},
  };
  for (const auto& c : cases) {
    const std::string got = refusal(c.text);
    EXPECT_NE(got.find(c.says), std::string::npos) << c.text << "\n" << got;
    EXPECT_EQ(got.rfind("file.csv: line ", 0), 0U) << got;
  }
}

}  // namespace
}  // namespace stash::planner
