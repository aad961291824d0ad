// SPDX-License-Identifier: Apache-2.0
// Maps whose gradients are gathered are large; here small ones are, of every shape, compared with the other
// way, which the tests of max_pool and relu_max_pool compare with the reference.

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "encoders/pooling/pool_backward.hpp"
#include "encoders/pooling/pool_reference.hpp"
#include "encoders/support.hpp"
#include "stash/cpu.hpp"

namespace stash::test {
namespace {

constexpr execution_context serial;

/// Both ways give the same bits and the same status.
template <class Source>
void check_source(const encoders::pool_shape& s, const tensor& dy, const Source& source, const layer& l,
                  std::int64_t gap, const execution_context& context) {
  tensor expected(l.x(), gap), dx(l.x(), gap);
  std::uint32_t expected_status = 0, status = 0;
  encoders::pool_backward(s, dy.view(), source, expected.view(), expected_status, serial,
                          encoders::backward_way::scatter);
  encoders::pool_backward(s, dy.view(), source, dx.view(), status, context, encoders::backward_way::gather);
  ASSERT_EQ(dx.bits(), expected.bits());
  ASSERT_TRUE(dx.gaps_intact());
  ASSERT_EQ(status, expected_status);
}

/// Whether the instruction set in use does.
bool gathers() {
  return encoders::loops().gather != nullptr;
}

/// All sources of argmaxes of one layer; `gap` lies after each pixel of the gradients.
void check_layer(const layer& l, std::int64_t gap, const execution_context& context, std::uint32_t seed) {
  SCOPED_TRACE(testing::Message() << "kernel " << l.window.kernel_h << "x" << l.window.kernel_w << " stride "
                                  << l.window.stride_h << "x" << l.window.stride_w << " pad "
                                  << l.window.pad_top << "," << l.window.pad_left << " map " << l.height
                                  << "x" << l.width << "x" << l.channels);
  tensor x(l.x()), y(l.y()), dy(l.y(), gap);
  fill_special(x, seed);
  fill_uniform(dy, seed + 1);
  if (dy.elements() > 0) dy[dy.elements() / 2] = -0.0F;
  encoded index(reference_index(l, reference_pool(l, x, y, framework_rule::tensorflow)).size());
  max_pool_forward(x.view(), y.view(), l.window, index.out(), framework_rule::tensorflow, serial);

  const encoders::pool_shape s = encoders::check_pool("test", "dx", x.view(), "dy", dy.view(), l.window);
  const auto source = encoders::checked_index_source(
      "test", {window_index_of(l.window), dtype::f32, dy.view().dims, index.in()}, l.window, s.taps(),
      dy.view());
  check_source(s, dy, source, l, gap, context);
  for (const framework_rule rule : rules) {
    const const_tensor_view values = x.view(), pooled = y.view();
    check_source(s, dy, encoders::dense_source(source, pooled, rule), l, gap, context);
    for (const bool relu : {false, true})
      check_source(s, dy, encoders::search_source(s, values, rule, relu), l, gap, context);
  }

  std::mt19937 generator(seed);
  for (std::uint8_t& byte : std::span(index.data(), index.out().bytes))
    byte = static_cast<std::uint8_t>(generator());
  check_source(s, dy, source, l, gap, context);
}

TEST(pool_gather, every_geometry) {
  if (!gathers()) GTEST_SKIP();
  std::uint32_t seed = 0;
  each_geometry([&](const layer& l) {
    check_layer(l, seed % 3, serial, seed);
    ++seed;
    if (testing::Test::HasFatalFailure()) FAIL();
  });
}

TEST(pool_gather, edges_of_vectors_and_parts) {
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    set_cpu_target(target);
    if (!gathers()) continue;
    for (const layer& l : edge_layers()) {
      check_layer(l, 0, serial, 7);
      if (testing::Test::HasFatalFailure()) FAIL() << target;
    }
  }
  set_cpu_target(before);
}

TEST(pool_gather, any_cut_of_the_loop) {
  if (!gathers()) GTEST_SKIP();
  for (const layer& l : edge_layers()) {
    check_layer(l, 16, threads(), 8);
    if (testing::Test::HasFatalFailure()) FAIL();
  }
}

/// Parts of columns and of channels, strides beyond the phases that are written at once, and windows as high
/// or wide as they may be.
TEST(pool_gather, large_rows) {
  if (!gathers()) GTEST_SKIP();
  for (const layer& l :
       {layer{1, 5, 700, 16, {3, 3, 2, 2, 1, 1}}.fit(false),
        layer{1, 7, 150, 300, {3, 3, 1, 1, 1, 1}}.fit(true), layer{1, 300, 5, 17, {256, 1, 3, 1}}.fit(false),
        layer{1, 3, 1100, 17, {1, 256, 1, 3, 0, 255}}.fit(true),
        layer{1, 4, 1200, 3, {2, 3, 1, 300}}.fit(true),
        layer{2, 3, 40, 2100, {2, 5, 1, 2, 1, 4}}.fit(true)}) {
    check_layer(l, 0, serial, 9);
    if (testing::Test::HasFatalFailure()) FAIL();
  }
}

/// Which layers go which way, and that a map as large as that arrives.
TEST(pool_gather, large_map) {
  const auto way = [](const layer& l, std::int64_t pitch, std::uintptr_t at) {
    const tensor_view dx{reinterpret_cast<void*>(at), dtype::f32, memory_space::host, l.x(), pitch};
    const tensor_view dy{reinterpret_cast<void*>(at), dtype::f32, memory_space::host, l.y()};
    return encoders::backward_way_of(encoders::check_pool("test", "dx", dx, "dy", dy, l.window), dx,
                                     threads());
  };
  constexpr auto scatter = encoders::backward_way::scatter;
  const layer l = layer{2, 512, 128, 64, {3, 3, 2, 2, 0, 1}}.fit(true);
  ASSERT_GE(l.x().elements(), encoders::streamed_elements);
  EXPECT_EQ(way(l, 64, 4096), gathers() ? encoders::backward_way::gather : scatter);
  EXPECT_EQ(way(l, 65, 4096), scatter);
  EXPECT_EQ(way(l, 64, 4100), scatter);
  EXPECT_EQ(way(layer{1, 512, 127, 64, l.window}.fit(true), 64, 4096), scatter);
  EXPECT_EQ(way(layer{2, 512, 129, 63, l.window}.fit(true), 63, 4096), scatter);
  EXPECT_EQ(way(layer{2, 512, 128, 64, {2, 2, 2, 2}}.fit(true), 64, 4096), scatter);
  EXPECT_EQ(way(layer{2, 512, 128, 64, {3, 3, 1, 1, 1, 1}}.fit(true), 64, 4096), scatter);

  tensor x(l.x()), y(l.y()), dy(l.y()), expected(l.x());
  fill_uniform(x, 1);
  fill_uniform(dy, 2);
  reference_pool_backward(l, dy, reference_pool(l, x, y, framework_rule::tensorflow), expected);
  const auto count = static_cast<std::size_t>(l.x().elements());
  std::vector<float> memory(count + 16);
  void* dx = memory.data();
  std::size_t bytes = memory.size() * sizeof(float);
  std::align(64, count * sizeof(float), dx, bytes);
  const tensor_view view{dx, dtype::f32, memory_space::host, l.x()};
  max_pool_backward(dy.view(), x.view(), view, l.window, framework_rule::tensorflow, threads());
  EXPECT_EQ(std::memcmp(dx, expected.view().data, count * sizeof(float)), 0);
}

}  // namespace
}  // namespace stash::test
