// SPDX-License-Identifier: Apache-2.0
// The reader of layout problems: what it accepts is written and read again as the same table, and what it
// holds is laid out or refused.

#include <string>

#include "fuzz/target.hpp"
#include "planner/layout/layout.hpp"
#include "planner/layout/layout_checker.hpp"
#include "planner/layout/layout_csv.hpp"
#include "stash/error.hpp"

namespace stash::fuzz {
namespace {

void require_solved(const planner::layout_table& table) {
  const planner::layout_problem problem{table.blocks, 1, {}};
  planner::layout_limits limits;
  limits.work = 10'000;
  try {
    const planner::layout_solution s = planner::solve_layout(problem, limits);
    const auto wrong = planner::check_layout(problem, s.offsets);
    require(wrong.empty(), wrong.empty() ? "" : wrong.front().c_str());
    require(s.height >= s.bound, "no layout is lower than the bound");
  } catch (const error& e) {
    require(e.code() == errc::invalid_argument, e.what());
  }
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const std::string text(input.begin(), input.end());
  planner::layout_table table;
  try {
    table = planner::read_layout_csv(text, "fuzz");
  } catch (const error& e) {
    require(e.code() == errc::bad_format, e.what());
    return;
  }
  const planner::layout_table again = planner::read_layout_csv(planner::write_layout_csv(table), "again");
  require(again.ids == table.ids && again.blocks == table.blocks && again.offsets == table.offsets,
          "written and read again");
  require_solved(table);
}

std::vector<bytes> seeds() {
  std::vector<bytes> all;
  for (const std::string text :
       {"id,lower,upper,size\na,0,9,4\nb,3,5,6\nc,4,12,0\nd,8,12,7\n",
        "buffer,start,end,size,alignment,hint,gaps,offset\r\n\"x \"\"1\"\"\",0,9,64,16,-1,2-3,0\r\n\r\n"
        "y,-4,3,8,1,64,,64\r\nz,2,7,30,3,,3-4@8:20 5-6@0:9,96\r\n",
        "\xEF\xBB\xBFsize,begin,upper\n9223372036854775807,-9223372036854775808,9223372036854775807\n",
        "lower,upper,size,hint\n0,9,1,2305843009213693952\n0,9,5,0\n1,5,5,7\n", "lower,upper,size"})
    all.emplace_back(text.begin(), text.end());
  return all;
}

}  // namespace stash::fuzz
