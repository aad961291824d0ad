// SPDX-License-Identifier: Apache-2.0
// Profiles: time on the device belongs to the calls around its launch; and which of it joins a trace.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/trace/profile_text.hpp"
#include "planner/trace/trace.hpp"
#include "planner/trace/trace_text.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;

const kernel_time& named(const std::vector<kernel_time>& times, const std::string& name) {
  const auto at =
      std::find_if(times.begin(), times.end(), [&](const kernel_time& k) { return k.name == name; });
  if (at == times.end()) throw std::runtime_error("no " + name);
  return *at;
}

TEST(kineto, device_work_belongs_to_all_calls_around_its_launch) {
  const auto times = read_kineto(small_profile());
  ASSERT_EQ(times.size(), 3U);
  EXPECT_THAT(named(times, "aten::conv2d").seconds, DoubleNear(34e-6, 1e-12));
  EXPECT_THAT(named(times, "aten::cudnn_convolution").seconds, DoubleNear(30e-6, 1e-12));
  EXPECT_EQ(named(times, "aten::add").seconds, 0.0);  // launched nothing
}

TEST(kineto, without_device_work_calls_have_their_own_time) {
  const auto times =
      read_kineto(R"([{"cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 9, "args": {}},,])");
  ASSERT_EQ(times.size(), 1U);
  EXPECT_THAT(times[0].seconds, DoubleNear(9e-6, 1e-12));
  EXPECT_EQ(times[0].record_function, -1);
  EXPECT_TRUE(times[0].external);
}

TEST(kineto, times_that_no_profile_can_have_count_as_none) {
  const auto times = read_kineto(R"([
      {"cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 9, "args": {"Record function id": 1}},
      {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 1, "args": {"correlation": 7}},
      {"cat": "kernel", "name": "a", "ts": 2, "dur": 1e308, "args": {"correlation": 7}},
      {"cat": "kernel", "name": "b", "ts": 3, "dur": 1e308, "args": {"correlation": 7}},
      {"cat": "kernel", "name": "c", "ts": 4, "dur": 5, "args": {"correlation": 7}}])");
  ASSERT_EQ(times.size(), 1U);
  EXPECT_DOUBLE_EQ(times[0].seconds, 5e-6);
}

TEST(kineto, the_record_function_is_preferred_to_the_external_id) {
  const auto times = read_kineto(small_profile());
  EXPECT_EQ(named(times, "aten::conv2d").record_function, 0);
  EXPECT_FALSE(named(times, "aten::conv2d").external);
  EXPECT_EQ(named(times, "aten::cudnn_convolution").record_function, 105);
  EXPECT_TRUE(named(times, "aten::cudnn_convolution").external);
}

TEST(kineto, text_that_is_no_profile_is_refused) {
  for (const char* const text : {"", "{}", "7", "{\"traceEvents\": [{]}", "{\"traceEvents\": [7]}"}) {
    try {
      read_kineto(text);
      ADD_FAILURE() << text;
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::bad_format);
      EXPECT_THAT(e.what(), HasSubstr("read_kineto: byte"));
    }
  }
}

/// Times for the first `count` operators of the trace, at 1, 2, 3... microseconds.
std::vector<kernel_time> times_of(const trace& t, std::size_t count) {
  std::vector<kernel_time> times;
  for (const trace_node& n : t.nodes) {
    if (n.name.starts_with("aten::") && times.size() < count)
      times.push_back({n.name, n.record_function, 1e-6 * static_cast<double>(times.size() + 1)});
  }
  return times;
}

TEST(kineto, joins_by_number_and_name) {
  trace t = read_trace(small_trace());
  const auto times = times_of(t, 1000);
  const joined_times joined = join_times(t, times);
  EXPECT_EQ(joined.operators, 17U);
  EXPECT_EQ(joined.joined, 17U);
  EXPECT_EQ(joined.why, "");
  const graph g = graph_of(t);
  EXPECT_EQ(g.ops.at(op_id(0)).label, "aten::cudnn_convolution");
  EXPECT_THAT(g.ops[op_id(0)].seconds.value(), DoubleNear(2e-6, 1e-12));
}

TEST(kineto, a_profile_of_another_run_joins_nothing) {
  trace t = read_trace(small_trace());
  std::vector<kernel_time> times = times_of(t, 1000);
  for (std::size_t i = 0; i + 1 < times.size(); ++i)
    times[i].name = times[i + 1].name;
  const joined_times joined = join_times(t, times);
  EXPECT_LT(joined.joined * 2, joined.operators);
  EXPECT_THAT(joined.why, HasSubstr("recorded together with the trace, got one in which"));
  EXPECT_THAT(joined.why, HasSubstr("of 17 operators of iteration 5 have the same number and name"));
  for (const op& o : graph_of(t).ops)
    EXPECT_FALSE(o.seconds.has_value());
}

TEST(kineto, a_profile_without_the_numbers_of_calls_is_not_called_another_runs) {
  trace t = read_trace(small_trace());
  std::vector<kernel_time> times = times_of(t, 1000);
  for (kernel_time& k : times) {
    k.record_function += 10000;
    k.external = true;
  }
  EXPECT_EQ(
      join_times(t, times).why,
      "expected a profile with the 'Record function id' of its calls (PyTorch 2.4 and newer write it), got "
      "one without any, and 0 of 17 operators of iteration 5 have the same 'External id' and name");
  for (kernel_time& k : times)
    k.record_function = -1;
  EXPECT_THAT(join_times(t, times).why, HasSubstr("got one without any, and 0 of 17"));
  // Kineto writes 0 where nothing asked for numbers.
  for (kernel_time& k : times)
    k = {k.name, 0, k.seconds};
  EXPECT_EQ(join_times(t, times).why,
            "expected a profile that was recorded while the observer of the trace was active "
            "(profile(execution_trace_observer=...)), got one in which every 'Record function id' is 0");
  times[0].record_function = 99999;
  EXPECT_THAT(join_times(t, times).why, HasSubstr("recorded together with the trace"));
  EXPECT_EQ(join_times(t, {}).why,
            "expected a profile with calls of operators (events of category cpu_op), got one without any");
}

TEST(kineto, external_ids_that_agree_join) {
  trace t = read_trace(small_trace());
  std::vector<kernel_time> times = times_of(t, 1000);
  for (kernel_time& k : times)
    k.external = true;
  const joined_times joined = join_times(t, times);
  EXPECT_EQ(joined.joined, 17U);
  EXPECT_EQ(joined.why, "");
}

TEST(kineto, a_trace_without_the_numbers_of_calls_is_told) {
  for (const std::int64_t number : {-1, 0}) {
    trace t = read_trace(small_trace());
    const std::vector<kernel_time> times = times_of(t, 1000);
    for (trace_node& n : t.nodes)
      n.record_function = number;
    EXPECT_EQ(join_times(t, times).why,
              "expected the trace to have the 'rf_id' of its calls, got one without any");
  }
}

}  // namespace
}  // namespace stash::planner
