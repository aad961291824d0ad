// SPDX-License-Identifier: Apache-2.0
// Results are the same in every rounding mode of the threads that make them, and encoded bytes in every mode.

#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <cmath>
#include <map>
#include <thread>

#include "encoders/support.hpp"
#include "stash/batch.hpp"
#include "stash/cpu.hpp"
#include "stash/csr.hpp"
#include "stash/dropout.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"

namespace {

using namespace stash;
using namespace stash_test;

using bytes = std::vector<std::uint8_t>;
/// By the name of the call.
using results = std::map<std::string, bytes>;

constexpr dtype types[] = {dtype::f32, dtype::f16, dtype::bf16};

class rounding_mode {
 public:
  explicit rounding_mode(int mode) : before_(std::fegetround()) { std::fesetround(mode); }
  ~rounding_mode() { std::fesetround(before_); }
  rounding_mode(const rounding_mode&) = delete;
  rounding_mode& operator=(const rounding_mode&) = delete;

 private:
  int before_;
};

/// A tensor of any type, dense, in memory of its own.
struct map {
  map(dtype t, shape d) : type(t), dims(d), memory(static_cast<std::size_t>(d.elements()) * size_of(t)) {}
  tensor_view view() { return {memory.data(), type, memory_space::host, dims, 0}; }
  const_tensor_view view() const { return {memory.data(), type, memory_space::host, dims, 0}; }

  dtype type;
  shape dims;
  bytes memory;
};

/// Patterns of every size, zeros of both signs, halfway cases and denormals among them.
map awkward_map(dtype type, shape dims, std::uint32_t seed) {
  map m(type, dims);
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < m.memory.size(); i += size_of(type)) {
    auto bits = static_cast<std::uint32_t>(random());
    const std::uint32_t kind = random() % 8;
    if (kind == 0) bits = 0;
    if (kind == 1) bits = 0x80000000U;
    if (kind == 2) bits &= 0x80ffffffU;
    if (kind == 3) bits = (bits & 0x80000000U) | (0x2f000000U + bits % 0x15000000U);
    if (kind > 3) bits = to_bits(static_cast<float>(static_cast<int>(bits % 20001) - 10000) / 1024);
    if (type == dtype::f16 && kind > 1) bits = random() % 3 == 0 ? bits : (bits & 0x83ff0000U);
    if (type != dtype::f32) bits >>= 16;
    std::memcpy(m.memory.data() + i, &bits, size_of(type));
  }
  return m;
}

/// Encoded bytes with their report.
struct stored {
  stored(const encoding& e, dtype source, std::int64_t elements)
      : how(e), memory(encoded_bytes_bound(e, source, elements), 0) {}
  encoded_view output() { return {memory.data(), memory.size(), nullptr, &report}; }
  const_encoded_view input() { return {memory.data(), memory.size(), nullptr, &report}; }

  encoding how;
  guarded_buffer memory;
  encode_report report;
};

std::vector<encoding> encodings_of(dtype type) {
  std::vector<encoding> list;
  for (const encoding_kind kind : {encoding_kind::raw, encoding_kind::sign_mask, encoding_kind::range_mask,
                                   encoding_kind::bitmap, encoding_kind::csr, encoding_kind::cast}) {
    const bool values =
        kind == encoding_kind::bitmap || kind == encoding_kind::csr || kind == encoding_kind::cast;
    for (int format = 0; format <= (values ? static_cast<int>(value_formats.size()) : 0); ++format) {
      for (const underflow_rule underflow : {underflow_rule::to_zero, underflow_rule::keep_nonzero}) {
        encoding e{.kind = kind, .values = static_cast<value_format>(format), .underflow = underflow};
        // Between two f16 numbers, where these are denormals.
        e.upper = 0x1.8p-20F + 0x1p-26F;
        if (code_of([&] { encoded_bytes_bound(e, type, 1); }) == errc::ok) list.push_back(e);
      }
    }
  }
  return list;
}

void add_encodings(dtype type, const execution_context& context, results& all) {
  const map x = awkward_map(type, {3, 1111}, 7);
  const std::int64_t n = x.dims.elements();
  for (const encoding& e : encodings_of(type)) {
    const bool mask = e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask;
    const std::string name = to_string(e) + (e.underflow == underflow_rule::to_zero ? "" : " kept") +
                             " of type " + std::to_string(static_cast<int>(type));
    stored s(e, type, n), in_batch(e, type, n);
    encode(e, x.view(), s.output(), {}, context);
    const encode_item item{e, x.view(), in_batch.output()};
    encode_batch({&item, 1}, {}, context);
    EXPECT_EQ(s.memory.copy(), in_batch.memory.copy()) << name;
    all[name] = s.memory.copy();
    map back(mask ? dtype::u8 : type, x.dims);
    decode({e, back.view().type, back.view().dims, s.input()}, back.view(), {}, context);
    EXPECT_TRUE(!is_lossless(e) || mask || back.memory == x.memory) << name;
    all[name + ", decoded"] = back.memory;
    if (e.kind != encoding_kind::csr) continue;
    std::vector<std::uint32_t> rows(static_cast<std::size_t>(n / csr_row_elements + 2)),
        columns(static_cast<std::size_t>(n));
    map values(type, {n});
    csr_export32({e, type, {n}, s.input()}, {rows.data(), columns.data(), values.memory.data(), type, n},
                 context);
    all[name + ", exported"] = values.memory;
  }
  const encoding bitmap = parse_encoding("bitmap");
  for (const double density : {0.1, 0.3, 1.0 / 3}) {
    const std::size_t slot = encoded_bytes_at_density(bitmap, type, 30000, density);
    all["bytes at densities"].push_back(static_cast<std::uint8_t>(slot / 16));
  }
}

void add_layers(dtype type, const execution_context& context, results& all) {
  const shape dims{2, 9, 8, 5};
  const map x = awkward_map(type, dims, 1), dy = awkward_map(type, dims, 2);
  const std::int64_t n = dims.elements();
  map y(type, dims), dx(type, dims);
  stored mask({.kind = encoding_kind::sign_mask}, type, n);
  const auto add = [&](const std::string& name, const map& result) {
    all[name + " of type " + std::to_string(static_cast<int>(type))] = result.memory;
  };
  constexpr framework_rule rule = framework_rule::tensorflow;
  relu_forward(x.view(), y.view(), mask.output(), rule, context);
  add("relu", y);
  relu_backward(dy.view(), {mask.how, dy.view().type, dy.view().dims, mask.input()}, dx.view(), rule,
                context);
  add("relu, backward", dx);
  leaky_relu_forward(x.view(), y.view(), {}, 0.3F, context);
  add("leaky relu", y);
  leaky_relu_backward(dy.view(), x.view(), dx.view(), 0.3F, context);
  add("leaky relu, backward", dx);
  const float upper = 0x1.8p-20F + 0x1p-26F;
  clip_forward(x.view(), y.view(), {}, 0, upper, rule, context);
  add("clip", y);
  clip_backward(dy.view(), x.view(), dx.view(), 0, upper, rule, context);
  add("clip, backward", dx);
  const dropout_key key{1, 2, 3};
  dropout_forward(x.view(), y.view(), {}, 0.3F, key, context);
  add("dropout", y);
  dropout_backward(dy.view(), dx.view(), 0.3F, key, context);
  add("dropout, backward", dx);
  for (const pool_window& window : {pool_window{}, pool_window{.kernel_h = 3, .kernel_w = 3},
                                    pool_window{.dilation_h = 2, .dilation_w = 2}}) {
    const std::string name =
        ", window " + std::to_string(window.kernel_h) + std::to_string(window.dilation_h);
    map pooled(type, {2, 4, 3, 5});
    const map gradient = awkward_map(type, pooled.dims, 3);
    stored index(
        {.kind = encoding_kind::window_index, .window_taps = static_cast<std::uint16_t>(window.taps())}, type,
        pooled.dims.elements());
    max_pool_forward(x.view(), pooled.view(), window, index.output(), rule, context);
    add("pool" + name, pooled);
    max_pool_backward(gradient.view(),
                      {window_index_of(window), gradient.view().type, gradient.view().dims, index.input()},
                      dx.view(), window, context);
    add("pool, backward" + name, dx);
    relu_max_pool_forward(x.view(), pooled.view(), window, {}, {}, rule, context);
    add("relu and pool" + name, pooled);
    relu_max_pool_backward(gradient.view(), x.view(), dx.view(), window, rule, context);
    add("relu and pool, backward" + name, dx);
  }
}

results all_results(const execution_context& context) {
  results all;
  for (const dtype type : types) {
    add_encodings(type, context, all);
    add_layers(type, context, all);
  }
  return all;
}

void expect_equal(const results& found, const results& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected)
    EXPECT_TRUE(found.at(name) == value) << name;
}

/// Runs `test` on each of the processor's targets.
template <class Test>
void on_every_target(const Test& test) {
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    SCOPED_TRACE(target);
    set_cpu_target(target);
    test();
  }
  set_cpu_target(before);
}

constexpr int other_modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

TEST(rounding_modes, do_not_change_results) {
  on_every_target([] {
    const results expected = all_results({});
    for (const int mode : other_modes) {
      SCOPED_TRACE(mode);
      const rounding_mode now(mode);
      const results found = all_results({});
      EXPECT_EQ(std::fegetround(), mode);
      expect_equal(found, expected);
    }
  });
}

TEST(rounding_modes, of_the_callers_threads_do_not_change_results) {
  const results expected = all_results({});
  for (int mode : other_modes) {
    SCOPED_TRACE(mode);
    execution_context context;
    context.user = &mode;
    context.parallel_for = [](void* user, std::int64_t count, std::int64_t, range_function body,
                              void* state) {
      std::thread other([&] {
        const rounding_mode now(*static_cast<const int*>(user));
        if (count > 1) body(state, 0, count / 2);
      });
      body(state, count > 1 ? count / 2 : 0, count);
      other.join();
    };
    expect_equal(all_results(context), expected);
  }
}

#if defined(__SSE2__)
// fegetround() does not see what was done to the vector unit alone.
TEST(rounding_modes, of_the_vector_unit_alone_do_not_change_results) {
  const results expected = all_results({});
  for (const auto mode : std::array<unsigned, 3>{_MM_ROUND_UP, _MM_ROUND_DOWN, _MM_ROUND_TOWARD_ZERO}) {
    SCOPED_TRACE(mode);
    const unsigned before = _MM_GET_ROUNDING_MODE();
    _MM_SET_ROUNDING_MODE(mode);
    const results found = all_results({});
    EXPECT_EQ(_MM_GET_ROUNDING_MODE(), mode);
    _MM_SET_ROUNDING_MODE(before);
    expect_equal(found, expected);
  }
}
#endif

TEST(denormal_modes, do_not_change_encodings) {
  if (!denormals_are_zero::works) GTEST_SKIP() << "no such mode";
  on_every_target([] {
    results expected, found;
    for (const dtype type : types)
      add_encodings(type, {}, expected);
    for (const dtype type : types) {
      const denormals_are_zero mode;
      add_encodings(type, {}, found);
    }
    expect_equal(found, expected);
  });
}

TEST(denormal_modes, do_not_change_what_is_refused) {
  if (!denormals_are_zero::works) GTEST_SKIP() << "no such mode";
  const map x = awkward_map(dtype::f32, {4}, 1);
  map y(dtype::f32, {4});
  const auto codes = [&] {
    std::vector<errc> list;
    for (const float a : {0.0F, -0.0F, 1e-42F, -1e-42F, 2e-42F, NAN}) {
      list.push_back(code_of([&] { dropout_forward(x.view(), y.view(), {}, a, {}, {}); }));
      list.push_back(code_of([&] { leaky_relu_forward(x.view(), y.view(), {}, a, {}); }));
      for (const float b : {0.0F, 1e-42F, -1e-42F, NAN}) {
        list.push_back(
            code_of([&] { clip_forward(x.view(), y.view(), {}, a, b, framework_rule::tensorflow, {}); }));
        const encoding e{.kind = encoding_kind::range_mask, .lower = a, .upper = b};
        list.push_back(code_of([&] { encoded_bytes_bound(e, dtype::f32, 4); }));
      }
    }
    for (const double density : {0.0, 1e-310, -1e-310}) {
      const encoding e = parse_encoding("bitmap");
      list.push_back(code_of([&] { encoded_bytes_at_density(e, dtype::f32, 4, density); }));
    }
    return list;
  };
  const std::vector<errc> expected = codes();
  const denormals_are_zero mode;
  EXPECT_EQ(codes(), expected);
}

}  // namespace
