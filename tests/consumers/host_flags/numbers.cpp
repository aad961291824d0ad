// SPDX-License-Identifier: Apache-2.0
// Prints what the library makes of values that compilers forget under -ffast-math. It makes and compares them
// as bits, so that only the library's own flags count. The same lines have to come out whatever flags the
// project has.

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "stash/dropout.hpp"
#include "stash/encoding.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"

bool throws_errors();

namespace {

constexpr std::int64_t side = 64, count = side * side;
constexpr std::uint32_t nan_bits = 0x7fc00000;
using words = std::vector<std::uint32_t>;

/// A buffer for encoded bytes.
struct alignas(16) block {
  std::array<std::uint8_t, 16> bytes{};
};

struct encoded {
  std::vector<block> memory{static_cast<std::size_t>(count)};
  stash::encode_report report{};
  stash::encoded_view to() { return {memory.data(), memory.size() * sizeof(block), nullptr, &report}; }
  stash::const_encoded_view from() {
    return {memory.data(), memory.size() * sizeof(block), nullptr, &report};
  }
};

const stash::shape map{1, side, side, 1};

stash::const_tensor_view in(const words& x) {
  return {x.data(), stash::dtype::f32, stash::memory_space::host, map, 0};
}

stash::tensor_view out(words& x) {
  return {x.data(), stash::dtype::f32, stash::memory_space::host, map, 0};
}

std::uint32_t next(std::uint32_t& state) {
  state = state * 1664525U + 1013904223U;
  return state;
}

/// Any bits, among them every kind of number.
words wild() {
  constexpr std::array<std::uint32_t, 24> edges{
      0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000, 0xbf800001,
      0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, nan_bits,   0xffc12345, 0x7f800001, 0x477fe000,
      0x477ff000, 0x33800000, 0x33000001, 0x43e00000, 0xc3e80000, 0x3f808000, 0x3f818000, 0x38800000};
  words x(count);
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t bits = next(state);
    x[i] = i % 3 == 0   ? 0
           : i % 7 == 0 ? edges[bits >> 16 & 15]
           : i % 5 == 0 ? edges[8 + (bits >> 16 & 15)]
                        : bits;
  }
  return x;
}

/// Numbers between 2^-20 and 2^20 and zeros of either sign: whether a thread takes denormals for zeros, as
/// one of a program that was linked with -ffast-math does, plays no part.
words tame() {
  words x(count);
  std::uint32_t state = 2;
  for (std::uint32_t& bits : x) {
    const std::uint32_t exponent = 107 + next(state) % 40;
    bits = (next(state) & 0x807fffff) | exponent << 23;
    if (next(state) >> 30 == 0) bits &= 0x80000000;
  }
  return x;
}

/// The same with infinities and NaN.
words tame_but_nan() {
  words x = tame();
  for (std::size_t i = 0; i < x.size(); i += 11)
    x[i] = i % 2 == 0 ? nan_bits : i % 3 == 0 ? 0x7f800000 : 0xff800000;
  return x;
}

std::uint64_t digest(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::uint8_t*>(data);
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < bytes; ++i)
    hash = (hash ^ at[i]) * 0x100000001b3;
  return hash;
}

/// `bytes`: of the encoded form. What lies after it is workspace, in which vectors of one width leave
/// something else than those of another.
void print(const std::string& what, const words& y, const encoded& stored,
           std::size_t bytes = count * sizeof(block)) {
  std::printf("%-28s %016llx %016llx\n", what.c_str(),
              static_cast<unsigned long long>(digest(y.data(), y.size() * 4)),
              static_cast<unsigned long long>(digest(stored.memory.data(), bytes)));
}

void encodings() {
  const words x = wild();
  for (const char* name : {"raw", "bitmap", "csr", "fp16", "bf16", "fp10", "fp8", "fp8_e5m2", "mxfp8_e4m3",
                           "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4_e2m1", "bitmap_fp16",
                           "bitmap_fp8", "csr_bf16", "csr_mxfp8_e4m3"}) {
    const stash::encoding how = stash::parse_encoding(name);
    encoded kept;
    words back(count);
    stash::encode(how, in(x), kept.to(), {}, {});
    stash::decode({how, out(back).type, out(back).dims, kept.from()}, out(back), {}, {});
    print(name, back, kept, stash::encoded_bytes_exact(how, in(x), {}));
  }
}

void layers(stash::framework_rule rule) {
  const std::string name = rule == stash::framework_rule::pytorch ? " pytorch" : " tensorflow";
  const words x = wild(), near_one = tame_but_nan(), dy = tame();
  words y(count), dx(count);
  encoded mask, limits, leaky, index, code, dropped;
  stash::relu_forward(in(x), out(y), mask.to(), rule, {});
  print("relu" + name, y, mask);
  stash::relu_backward(in(dy), in(y), out(dx), rule, {});
  print("relu gradient" + name, dx, mask);
  stash::clip_forward(in(x), out(y), limits.to(), 0.0F, 6.0F, rule, {});
  print("clip" + name, y, limits);
  stash::leaky_relu_forward(in(near_one), out(y), leaky.to(), 0.1F, {});
  print("leaky relu" + name, y, leaky);
  stash::dropout_forward(in(dy), out(y), dropped.to(), 0.3F, {1, 2, 3}, {});
  print("dropout" + name, y, dropped);
  // As many windows as elements, which overlap.
  const stash::pool_window window{
      .kernel_h = 3, .kernel_w = 3, .stride_h = 1, .stride_w = 1, .pad_top = 1, .pad_left = 1};
  stash::max_pool_forward(in(near_one), out(y), window, index.to(), rule, {});
  print("pool" + name, y, index);
  stash::max_pool_backward(in(dy), {window_index_of(window), in(dy).type, in(dy).dims, index.from()}, out(dx),
                           window, {});
  print("pool gradient" + name, dx, index);
  stash::relu_max_pool_forward(in(near_one), out(y), window, code.to(), {}, rule, {});
  print("relu and pool" + name, y, code);
}

/// 1, NaN, 2, 3 in one window: the smallest case that goes wrong.
bool keeps_nan() {
  const std::array<std::uint32_t, 4> x{0x3f800000, nan_bits, 0x40000000, 0x40400000};
  std::uint32_t y = 0;
  stash::max_pool_forward({x.data(), stash::dtype::f32, stash::memory_space::host, {1, 2, 2, 1}, 0},
                          {&y, stash::dtype::f32, stash::memory_space::host, {1, 1, 1, 1}, 0}, {}, {},
                          stash::framework_rule::pytorch, {});
  std::printf("largest of 1 NaN 2 3: %08x\n", static_cast<unsigned>(y));
  return y == nan_bits;
}

}  // namespace

int main() {
  encodings();
  layers(stash::framework_rule::tensorflow);
  layers(stash::framework_rule::pytorch);
  if (!keeps_nan()) return 1;
  if (!throws_errors()) return 2;
  return 0;
}
