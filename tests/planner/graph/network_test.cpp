// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "stash/error.hpp"

namespace stash::planner {
namespace {

using dims = std::vector<std::int64_t>;
using ::testing::HasSubstr;

template <class Call>
void expect_refused(const Call& call, const std::string& node, const std::string& detail) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected a complaint about " << node << ": " << detail;
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::invalid_argument);
    EXPECT_THAT(e.what(), HasSubstr("node '" + node + "'"));
    EXPECT_THAT(e.what(), HasSubstr(detail));
    EXPECT_THAT(e.what(), HasSubstr("expected"));
    EXPECT_THAT(e.what(), HasSubstr("got"));
  }
}

class network_test : public ::testing::Test {
 protected:
  network net{"net"};
  node_id image = net.input(28, 30, 3);
  // By value: adding a node moves the others, and one expression may do both.
  dims shape(node_id id) const { return net.at(id).shape; }
};

TEST_F(network_test, input_is_the_first_node) {
  EXPECT_EQ(image, node_id(0));
  EXPECT_EQ(net.name(), "net");
  EXPECT_EQ(net.at(image).name, "input");
  EXPECT_EQ(net.at(image).kind, node_kind::input);
  EXPECT_EQ(shape(image), (dims{28, 30, 3}));
  EXPECT_TRUE(net.at(image).inputs.empty());
}

TEST_F(network_test, conv2d_shapes_and_attributes) {
  const auto c = net.conv2d("c", image, 8, {5, 3}, {2, 1}, {2, 0}, false);
  EXPECT_EQ(shape(c), (dims{14, 28, 8}));
  const node& n = net.at(c);
  EXPECT_EQ(n.kind, node_kind::conv2d);
  EXPECT_EQ(n.inputs, std::vector<node_id>{image});
  op_attributes want;
  want.kernel_h = 5;
  want.kernel_w = 3;
  want.stride_h = 2;
  want.pad_top = want.pad_bottom = 2;
  want.out_features = 8;
  want.bias = false;
  EXPECT_EQ(n.attributes, want);
}

TEST_F(network_test, conv2d_may_cover_the_whole_padded_map) {
  EXPECT_EQ(shape(net.conv2d("exact", image, 1, {28, 30}, {1, 1}, {0, 0})), (dims{1, 1, 1}));
  EXPECT_EQ(shape(net.conv2d("padded", image, 1, {30, 30}, {1, 1}, {1, 0})), (dims{1, 1, 1}));
  expect_refused(
      [&] {
        net.conv2d("large", image, 1, {29, 3}, {1, 1}, {0, 0});
      },
      "large", "28x30 of 'input'");
}

TEST_F(network_test, conv2d_groups) {
  const auto c = net.conv2d("c", image, 12, {1, 1}, {1, 1}, {0, 0});
  const auto g = net.conv2d("g", c, 8, {3, 3}, {1, 1}, {1, 1}, true, 4);
  EXPECT_EQ(shape(g), (dims{28, 30, 8}));
  EXPECT_EQ(parameter_count(net), 3 * 12 + 12 + 9 * 3 * 8 + 8);
  expect_refused([&] { net.conv2d("odd", c, 8, {1, 1}, {1, 1}, {0, 0}, true, 3); }, "odd", "groups");
  expect_refused([&] { net.conv2d("odd", c, 9, {1, 1}, {1, 1}, {0, 0}, true, 4); }, "odd", "groups");
  expect_refused([&] { net.conv2d("odd", c, 8, {1, 1}, {1, 1}, {0, 0}, true, 0); }, "odd", "got 0");
}

TEST_F(network_test, conv2d_refuses_senseless_numbers) {
  expect_refused([&] { net.conv2d("c", image, 0, {1, 1}, {1, 1}, {0, 0}); }, "c", "out_channels");
  expect_refused([&] { net.conv2d("c", image, 1, {0, 1}, {1, 1}, {0, 0}); }, "c", "kernel");
  expect_refused([&] { net.conv2d("c", image, 1, {1, 1}, {1, 0}, {0, 0}); }, "c", "stride");
  expect_refused([&] { net.conv2d("c", image, 1, {1, 1}, {1, 1}, {-1, 0}); }, "c", "padding");
  expect_refused(
      [&] {
        net.conv2d("c", image, std::numeric_limits<std::int64_t>::max(), {1, 1}, {1, 1}, {0, 0});
      },
      "c", "weight");
  constexpr std::int32_t huge = std::numeric_limits<std::int32_t>::max();
  expect_refused([&] { net.conv2d("c", image, 1, {1, 1}, {1, 1}, {huge, huge}); }, "c", "output shape");
  expect_refused([&] { net.conv2d("c", image, 1, {huge, huge}, {1, 1}, {huge, huge}); }, "c", "weight");
  EXPECT_EQ(net.nodes().size(), 1U) << "a refused node must leave nothing in the network";
}

TEST_F(network_test, dense_reads_all_features) {
  const auto d = net.dense("d", image, 10);
  EXPECT_EQ(shape(d), dims{10});
  EXPECT_EQ(net.at(d).attributes.out_features, 10);
  EXPECT_EQ(parameter_count(net), 28 * 30 * 3 * 10 + 10);
  expect_refused([&] { net.dense("e", image, 0); }, "e", "outputs");
  expect_refused([&] { net.conv2d("c", d, 1, {1, 1}, {1, 1}, {0, 0}); }, "c", "[10] from 'd'");
}

TEST_F(network_test, element_wise_nodes_keep_the_shape) {
  EXPECT_EQ(shape(net.relu("r", image)), shape(image));
  EXPECT_EQ(shape(net.relu6("r6", image)), shape(image));
  const auto leaky = net.leaky_relu("l", image, 0.25F);
  EXPECT_EQ(shape(leaky), shape(image));
  EXPECT_EQ(net.at(leaky).attributes.negative_slope, 0.25F);
  const auto drop = net.dropout("d", image, 0.25F);
  EXPECT_EQ(shape(drop), shape(image));
  EXPECT_EQ(net.at(drop).attributes.drop_probability, 0.25F);
  const auto norm = net.batch_norm("b", image, 1e-3F, 0.5F);
  EXPECT_EQ(shape(norm), shape(image));
  EXPECT_EQ(net.at(norm).attributes.epsilon, 1e-3F);
  EXPECT_EQ(net.at(norm).attributes.statistics_momentum, 0.5F);
  const auto local = net.lrn("n", image, 3, 0.5F, 0.25F, 1.0F);
  EXPECT_EQ(shape(local), shape(image));
  EXPECT_EQ(net.at(local).attributes.lrn_size, 3);
  EXPECT_EQ(net.at(local).attributes.lrn_alpha, 0.5F);
  EXPECT_EQ(net.at(local).attributes.lrn_beta, 0.25F);
  EXPECT_EQ(net.at(local).attributes.lrn_k, 1.0F);
  EXPECT_EQ(parameter_count(net), 2 * 3);
}

TEST_F(network_test, element_wise_nodes_refuse_bad_numbers) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float inf = std::numeric_limits<float>::infinity();
  expect_refused([&] { net.leaky_relu("l", image, nan); }, "l", "negative_slope");
  expect_refused([&] { net.dropout("d", image, 1.0F); }, "d", "probability");
  expect_refused([&] { net.dropout("d", image, -0.1F); }, "d", "probability");
  expect_refused([&] { net.dropout("d", image, nan); }, "d", "probability");
  expect_refused([&] { net.batch_norm("b", image, 0.0F); }, "b", "epsilon");
  expect_refused([&] { net.batch_norm("b", image, inf); }, "b", "epsilon");
  expect_refused([&] { net.batch_norm("b", image, 1e-5F, 1.5F); }, "b", "statistics_momentum");
  expect_refused([&] { net.lrn("n", image, 4); }, "n", "size");
  expect_refused([&] { net.lrn("n", image, 5, -1.0F); }, "n", "alpha");
  expect_refused([&] { net.lrn("n", image, 5, 1.0F, nan); }, "n", "beta");
  expect_refused([&] { net.lrn("n", image, 5, 1.0F, 1.0F, 0.0F); }, "n", "k");
  EXPECT_EQ(net.dropout("none", image, 0.0F), node_id(1));
}

TEST_F(network_test, pooling_shapes) {
  for (const bool average : {false, true}) {
    const std::string prefix = average ? "a" : "m";
    const auto pool = [&](const std::string& name, std::int32_t kernel, std::int32_t stride,
                          std::int32_t padding, bool ceil) {
      return average ? net.avg_pool(prefix + name, image, kernel, stride, padding, ceil)
                     : net.max_pool(prefix + name, image, kernel, stride, padding, ceil);
    };
    EXPECT_EQ(shape(pool("2/2", 2, 2, 0, false)), (dims{14, 15, 3}));
    EXPECT_EQ(shape(pool("3/2", 3, 2, 0, false)), (dims{13, 14, 3}));
    EXPECT_EQ(shape(pool("3/2 ceil", 3, 2, 0, true)), (dims{14, 15, 3}));
    EXPECT_EQ(shape(pool("3/2 pad", 3, 2, 1, false)), (dims{14, 15, 3}));
    EXPECT_EQ(shape(pool("3/1 pad", 3, 1, 1, false)), (dims{28, 30, 3}));
    const auto last = pool("3/2 pad ceil", 3, 2, 1, true);
    EXPECT_EQ(shape(last), (dims{15, 16, 3}));
    const node& n = net.at(last);
    EXPECT_EQ(n.kind, average ? node_kind::avg_pool : node_kind::max_pool);
    op_attributes want;
    want.kernel_h = want.kernel_w = 3;
    want.stride_h = want.stride_w = 2;
    want.pad_top = want.pad_left = want.pad_bottom = want.pad_right = 1;
    want.ceil_mode = true;
    EXPECT_EQ(n.attributes, want);
    expect_refused([&] { pool("p", 2, 2, 2, false); }, prefix + "p", "padding");
    expect_refused([&] { pool("p", 29, 1, 0, false); }, prefix + "p", "kernel");
    expect_refused([&] { pool("p", 0, 1, 0, false); }, prefix + "p", "kernel");
    expect_refused([&] { pool("p", 2, 0, 0, true); }, prefix + "p", "stride");
    expect_refused([&] { pool("p", 2, 1, -1, true); }, prefix + "p", "padding");
  }
  const auto vector = net.flatten("v", image);
  expect_refused([&] { net.max_pool("p", vector, 2, 2); }, "p", "[2520] from 'v'");
  expect_refused([&] { net.avg_pool("p", vector, 2, 2); }, "p", "[2520] from 'v'");
}

// Counts windows one by one, straight from the rule.
std::int64_t count_windows(std::int64_t extent, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                           bool ceil_mode) {
  std::int64_t count = 0;
  for (std::int64_t start = -pad;; start += stride) {
    const bool complete = start + kernel <= extent + pad;
    // A partial window is the first that overruns and must begin before the padding that follows the input.
    const bool partial = ceil_mode && start < extent && start - stride + kernel < extent + pad;
    if (!complete && !partial) return count;
    ++count;
  }
}

TEST(window_count_test, agrees_with_counting) {
  for (std::int64_t kernel = 1; kernel <= 5; ++kernel) {
    for (std::int64_t stride = 1; stride <= 6; ++stride) {
      for (std::int64_t pad = 0; pad < kernel; ++pad) {
        for (std::int64_t extent = std::max<std::int64_t>(1, kernel - 2 * pad); extent <= 16; ++extent) {
          for (const bool ceil_mode : {false, true}) {
            EXPECT_EQ(window_count(extent, kernel, stride, pad, pad, ceil_mode),
                      count_windows(extent, kernel, stride, pad, ceil_mode))
                << "extent " << extent << " kernel " << kernel << " stride " << stride << " pad " << pad
                << " ceil " << ceil_mode;
          }
        }
      }
    }
  }
}

TEST(window_count_test, ceil_mode_corners) {
  EXPECT_EQ(window_count(112, 3, 2, 0, 0, false), 55);
  EXPECT_EQ(window_count(112, 3, 2, 0, 0, true), 56);
  EXPECT_EQ(window_count(6, 3, 2, 1, 1, false), 3);
  EXPECT_EQ(window_count(6, 3, 2, 1, 1, true), 4) << "starts at 5, on the last tap";
  EXPECT_EQ(window_count(5, 2, 2, 1, 1, true), 3) << "would start at 5, in the padding after the input";
  EXPECT_EQ(window_count(3, 1, 3, 0, 0, true), 1) << "would start after the input";
  EXPECT_EQ(window_count(2, 3, 1, 0, 0, true), 0) << "the kernel does not fit";
}

TEST_F(network_test, global_avg_pool_and_flatten) {
  const auto pooled = net.global_avg_pool("g", image);
  EXPECT_EQ(shape(pooled), (dims{1, 1, 3}));
  const auto flat = net.flatten("f", pooled);
  EXPECT_EQ(shape(flat), dims{3});
  EXPECT_EQ(shape(net.flatten("again", flat)), dims{3});
  expect_refused([&] { net.global_avg_pool("h", flat); }, "h", "[3] from 'f'");
  expect_refused([&] { net.lrn("n", flat); }, "n", "[3] from 'f'");
}

TEST_F(network_test, add_wants_equal_shapes) {
  const auto a = net.conv2d("a", image, 4, {1, 1}, {1, 1}, {0, 0});
  const auto b = net.conv2d("b", image, 4, {3, 3}, {1, 1}, {1, 1});
  const auto c = net.conv2d("c", image, 5, {1, 1}, {1, 1}, {0, 0});
  const auto sum = net.add("sum", a, b);
  EXPECT_EQ(shape(sum), (dims{28, 30, 4}));
  EXPECT_EQ(net.at(sum).inputs, (std::vector<node_id>{a, b}));
  expect_refused([&] { net.add("bad", a, c); }, "bad", "[28, 30, 5] from 'c'");
}

TEST_F(network_test, concat_joins_channels) {
  const auto a = net.conv2d("a", image, 4, {1, 1}, {1, 1}, {0, 0});
  const auto b = net.conv2d("b", image, 5, {1, 1}, {1, 1}, {0, 0});
  const auto small = net.max_pool("small", image, 2, 2);
  const auto all = net.concat("all", {a, b, image});
  EXPECT_EQ(shape(all), (dims{28, 30, 12}));
  EXPECT_EQ(net.at(all).inputs, (std::vector<node_id>{a, b, image}));
  EXPECT_EQ(shape(net.concat("one", {a})), shape(a));
  const auto f = net.flatten("f", small);
  const auto d = net.dense("d", small, 7);
  EXPECT_EQ(shape(net.concat("vectors", {f, d})), dims{14 * 15 * 3 + 7});
  expect_refused([&] { net.concat("none", {}); }, "none", "at least one");
  expect_refused([&] { net.concat("bad", {a, small}); }, "bad", "inputs[1]");
  expect_refused([&] { net.concat("bad", {a, f}); }, "bad", "inputs[1]");
}

TEST_F(network_test, loss_is_the_last_node) {
  expect_refused([&] { net.softmax_cross_entropy("loss", image); }, "loss", "[28, 30, 3] from 'input'");
  const auto logits = net.dense("fc", image, 10);
  const auto loss = net.softmax_cross_entropy("loss", logits);
  EXPECT_EQ(shape(loss), dims{10});
  expect_refused([&] { net.relu("late", logits); }, "late", "after 'loss'");
}

TEST_F(network_test, names_are_unique_and_not_empty) {
  net.relu("r", image);
  expect_refused([&] { net.relu("r", image); }, "r", "unique");
  expect_refused([&] { net.relu("", image); }, "", "a name");
  expect_refused([&] { net.relu("input", image); }, "input", "unique");
  expect_refused([&] { net.input(28, 28, 1); }, "input", "unique");
  EXPECT_EQ(net.nodes().size(), 2U);
}

TEST_F(network_test, operands_must_exist) {
  expect_refused([&] { net.relu("r", node_id(1)); }, "r", "got 1");
  expect_refused([&] { net.relu("r", no_id); }, "r", "got -1");
  expect_refused([&] { net.add("s", image, node_id(7)); }, "s", "got 7");
  expect_refused([&] { net.concat("c", {image, node_id(9)}); }, "c", "got 9");
}

TEST(network_input_test, extents_must_be_positive_and_sane) {
  network net("n");
  expect_refused([&] { net.input(0, 28, 1); }, "input", "[0, 28, 1]");
  expect_refused([&] { net.input(28, -1, 1); }, "input", "[28, -1, 1]");
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  expect_refused([&] { net.input(huge, huge, huge); }, "input", "output shape");
  EXPECT_EQ(net.input(1, 1, 1), node_id(0));
  EXPECT_EQ(parameter_count(net), 0);
}

}  // namespace
}  // namespace stash::planner
