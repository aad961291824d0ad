// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels on maps of more elements, and groups with more bytes, than 32 bits count.

#include "simt/large_maps.hpp"
#include "stash/dropout.hpp"
#include "stash/relu.hpp"

namespace stash {
namespace {

using namespace test;

const plane bits{8, 1};

struct planes_under_test {
  const char* name;
  dtype type;
  std::vector<plane> planes;
};

std::vector<planes_under_test> all_planes() {
  std::vector<planes_under_test> all{{"raw", dtype::u8, {{1, 1}}}, {"sign_mask", dtype::u8, {bits}}};
  for (const dtype type : {dtype::f32, dtype::f16}) {
    all.push_back({"raw", type, {{1, width(type)}}});
    all.push_back({"sign_mask", type, {bits}});
    all.push_back({"range_mask", type, {bits}});
    all.push_back({"fp10", type, {{3, 4}}});
    all.push_back({"fp8", type, {{1, 1}}});
    all.push_back({"mxfp8_e4m3", type, {{32, 1}, {1, 1}}});
    all.push_back({"mxfp6_e2m3", type, {{32, 1}, {4, 3}}});
    all.push_back({"mxfp4_e2m1", type, {{32, 1}, {2, 1}}});
  }
  all.push_back({"fp16", dtype::f32, {{1, 2}}});
  return all;
}

/// Values of a type that layers take, or zeros and ones.
tensor values(dtype type, std::uint32_t seed) {
  tensor t = ending_values(type == dtype::u8 ? dtype::f32 : type, elements_at_end, seed);
  if (type == dtype::u8) {
    t.type = type;
    for (std::uint32_t& b : t.bits)
      b = b % 3 & 1;
  }
  return t;
}

void expect_encoded_as_by_cpu(const planes_under_test& tested, std::int64_t before) {
  SCOPED_TRACE(std::string(tested.name) + " of " + std::to_string(static_cast<int>(tested.type)));
  encoding e = parse_encoding(tested.name);
  e.upper = 6;
  ending_map x = ended_map(tested.type, before);
  x.set(values(tested.type, 1));
  ending_planes stored(tested.planes, before + elements_at_end, elements_at_end);
  encode(e, x.far(), stored.far_out(), {}, device);
  encode(e, x.near(), stored.near_out(), {}, {});
  stored.expect_same("encoded bytes");
  const bool mask = e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask;
  const ending_map y = ended_map(mask ? dtype::u8 : tested.type, before);
  decode({e, y.far().type, y.far().dims, stored.far_in()}, y.far(), {}, device);
  decode({e, y.near().type, y.near().dims, stored.near_in()}, y.near(), {}, {});
  y.expect_same("decoded values");
}

TEST_F(large_maps, encode_and_decode) {
  for (const planes_under_test& tested : all_planes())
    expect_encoded_as_by_cpu(tested, elements_before);
}

TEST_F(large_maps, more_groups_than_32_bits_count) {
  for (const planes_under_test& tested : all_planes()) {
    if (tested.type != dtype::f32) expect_encoded_as_by_cpu(tested, very_many);
  }
}

TEST_F(large_maps, maps_with_gaps_between_pixels) {
  constexpr std::int64_t inner = 96, pitch = 100, rows = 257;
  const auto make = [&](dtype type) {
    return ending_map(type, shape{elements_before / inner + rows, inner}, shape{rows, inner}, pitch);
  };
  constexpr std::int64_t in_all = elements_before + rows * inner;
  for (const dtype type : {dtype::f32, dtype::f16}) {
    ending_map x = make(type);
    x.set(ending_values(type, rows * inner, 2));
    ending_planes stored({{1, width(type)}}, in_all, rows * inner);
    encode(parse_encoding("raw"), x.far(), stored.far_out(), {}, device);
    encode(parse_encoding("raw"), x.near(), stored.near_out(), {}, {});
    stored.expect_same("raw");
    const ending_map y = make(type);
    ending_planes mask({bits}, in_all, rows * inner);
    relu_forward(x.far(), y.far(), mask.far_out(), framework_rule::pytorch, device);
    relu_forward(x.near(), y.near(), mask.near_out(), framework_rule::pytorch, {});
    y.expect_same("y");
    mask.expect_same("mask");
  }
}

TEST_F(large_maps, activations_and_their_gradients) {
  constexpr framework_rule rule = framework_rule::tensorflow;
  const encoding sign = parse_encoding("sign_mask");
  for (const dtype type : {dtype::f32, dtype::f16}) {
    SCOPED_TRACE(type == dtype::f32 ? "f32" : "f16");
    ending_map x = ended_map(type), dy = ended_map(type);
    x.set(values(type, 3));
    dy.set(values(type, 4));
    const auto same_dx = [&](const char* what, const auto& backward) {
      const ending_map dx = ended_map(type);
      backward(dy.far(), dx.far(), true, device);
      backward(dy.near(), dx.near(), false, execution_context{});
      dx.expect_same(what);
    };
    const auto ending = [](const ending_map& m, bool far) { return far ? m.far() : m.near(); };

    const ending_map y = ended_map(type), clipped = ended_map(type);
    ending_planes mask({bits}, elements_in_all, elements_at_end);
    relu_forward(x.far(), y.far(), mask.far_out(), rule, device);
    relu_forward(x.near(), y.near(), mask.near_out(), rule, {});
    y.expect_same("y");
    mask.expect_same("mask");
    clip_forward(x.far(), clipped.far(), {}, 0, 6, rule, device);
    clip_forward(x.near(), clipped.near(), {}, 0, 6, rule, {});
    clipped.expect_same("y of clip");
    same_dx("dx from the mask", [&](const auto& g, const auto& dx, bool far, const auto& context) {
      relu_backward(g, {sign, g.type, g.dims, far ? mask.far_in() : mask.near_in()}, dx, rule, context);
    });
    same_dx("dx from y", [&](const auto& g, const auto& dx, bool far, const auto& context) {
      relu_backward(g, ending(y, far), dx, rule, context);
    });
    same_dx("dx of leaky ReLU", [&](const auto& g, const auto& dx, bool far, const auto& context) {
      leaky_relu_backward(g, ending(x, far), dx, 0.1F, context);
    });
    same_dx("dx of clip", [&](const auto& g, const auto& dx, bool far, const auto& context) {
      clip_backward(g, ending(x, far), dx, 0, 6, rule, context);
    });
    for (const planes_under_test& tested : all_planes()) {
      encoding e = parse_encoding(tested.name);
      e.underflow = underflow_rule::keep_nonzero;
      if (e.kind != encoding_kind::cast || tested.type != type) continue;
      ending_planes stored(tested.planes, elements_in_all, elements_at_end);
      encode(e, y.far(), stored.far_out(), {}, device);
      encode(e, y.near(), stored.near_out(), {}, {});
      same_dx(tested.name, [&](const auto& g, const auto& dx, bool far, const auto& context) {
        relu_backward(g, {e, g.type, g.dims, far ? stored.far_in() : stored.near_in()}, dx, rule, context);
      });
    }
  }
}

/// On the host: of a large map the end alone.
void run_the_end(void*, std::int64_t count, std::int64_t, range_function body, void* state) {
  body(state, std::max<std::int64_t>(0, count - 30), count);
}

/// Decisions depend on the element's number, so that the host has to have the large map, too. There are four
/// to a number of the generator, of which there are more than 32 bits count.
TEST_F(large_maps, dropout) {
  constexpr execution_context end_of_host{memory_space::host, run_the_end};
  constexpr dropout_key key{0x123456789abcdefU, 7, 3};
  constexpr std::int64_t before = 4 * elements_before, all = before + elements_at_end;
  const std::uint64_t bytes = all * 4, mask_bytes = bits.size(all);
  const auto view = [](const reserved& r, memory_space space) {
    return tensor_view{r.data(), dtype::f32, space, shape{all}, 0};
  };
  const reserved x(bytes), by_host(bytes), by_device(bytes), host_mask(mask_bytes), device_mask(mask_bytes);
  for (std::int64_t i = 0; i < elements_at_end; ++i) {
    const float value = 1 + static_cast<float>(i);
    x.write(static_cast<std::uint64_t>(before + i) * 4, &value, 4);
  }
  const auto same = [&](const reserved& found, const reserved& expected, std::uint64_t length) {
    EXPECT_EQ(found.read(found.size() - length, length), expected.read(expected.size() - length, length));
  };
  constexpr std::size_t end_bytes = elements_at_end * 4, end_mask_bytes = (elements_at_end + 127) / 128 * 16;
  encode_report host_report{}, device_report{};
  dropout_forward(view(x, memory_space::device), view(by_device, memory_space::device),
                  {device_mask.data(), mask_bytes, nullptr, &device_report}, 0.3F, key, device);
  dropout_forward(view(x, memory_space::host), view(by_host, memory_space::host),
                  {host_mask.data(), mask_bytes, nullptr, &host_report}, 0.3F, key, end_of_host);
  same(by_device, by_host, end_bytes);
  same(device_mask, host_mask, end_mask_bytes);
  EXPECT_NE(by_host.read(bytes - end_bytes, end_bytes), std::vector<std::uint8_t>(end_bytes));

  const reserved from_key(bytes), from_mask(bytes);
  dropout_backward(view(x, memory_space::device), view(from_key, memory_space::device), 0.3F, key, device);
  same(from_key, by_host, end_bytes);
  const tensor_view dy = view(x, memory_space::device);
  dropout_backward(dy,
                   {{.kind = encoding_kind::sign_mask},
                    dy.type,
                    dy.dims,
                    {device_mask.data(), mask_bytes, nullptr, &device_report}},
                   view(from_mask, memory_space::device), 0.3F, device);
  same(from_mask, by_host, end_bytes);
}

}  // namespace
}  // namespace stash
