// SPDX-License-Identifier: Apache-2.0
// What a call writes may not overlap what it reads or writes besides: refused before a byte changes. What may
// be one memory by the header, and channels next to each other, stay legal.

#include <gtest/gtest.h>

#include <functional>

#include "encoders/support.hpp"
#include "stash/batch.hpp"
#include "stash/csr.hpp"
#include "stash/dropout.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"
#include "stash/size_query.hpp"

namespace {

using namespace stash;
using namespace stash_test;

constexpr framework_rule rule = framework_rule::pytorch;
constexpr dropout_key key{1, 2, 3};

class overlap : public ::testing::Test {
 protected:
  static constexpr std::int64_t count = 1500;

  std::uint8_t* at(std::size_t offset) { return memory.data() + offset; }
  tensor_view map(std::size_t offset, shape dims = {count}, std::int64_t pitch = 0, dtype type = dtype::f32) {
    return {at(offset), type, memory_space::host, dims, pitch};
  }
  encoded_view out(std::size_t offset, std::size_t bytes = 8000) {
    return {at(offset), bytes, nullptr, &report};
  }
  const_encoded_view in(std::size_t offset, std::size_t bytes = 8000) {
    return {at(offset), bytes, nullptr, &report};
  }
  /// The call is refused and has changed nothing.
  void refused(const char* what, const std::function<void()>& call) {
    const std::vector<std::uint8_t> before = memory.copy();
    EXPECT_EQ(code_of(call), errc::invalid_argument) << what;
    EXPECT_EQ(memory.copy(), before) << what;
    EXPECT_EQ(report.slot_bytes, 0u) << what;
    report = {};
  }
  void accepted(const char* what, const std::function<void()>& call) {
    EXPECT_EQ(code_of(call), errc::ok) << what;
    report = {};
  }

  guarded_buffer memory{65536};
  encode_report report;
  const execution_context context{};
};

const char* const kinds[] = {"raw",        "sign_mask", "fp16", "fp8",    "fp10",
                             "mxfp8_e4m3", "bitmap",    "csr",  "csr_fp8"};

TEST_F(overlap, encode) {
  for (const char* name : kinds) {
    const encoding e = parse_encoding(name);
    const std::size_t size = encoded_bytes_bound(e, dtype::f32, count);
    refused(name, [&] { encode(e, map(0), out(0), {}, context); });
    refused(name, [&] { encode(e, map(size - 4), out(0), {}, context); });
    refused(name, [&] { encode(e, map(0), out(count * 4 - 16), {}, context); });
    accepted(name, [&] { encode(e, map(8192), out(8192 - size, size), {}, context); });
    accepted(name, [&] { encode(e, map(0), out(6000), {}, context); });
    // A slot that is larger than what is ever used may reach into the rest of its memory.
    accepted(name, [&] { encode(e, map(8192), out(8192 - size, 20000), {}, context); });
  }
  const encoding bitmap = parse_encoding("bitmap");
  encoded_view to = out(8192);
  to.report = reinterpret_cast<encode_report*>(at(8192 + 64));
  refused("report in the slot", [&] { encode(bitmap, map(0), to, {}, context); });
  to.report = reinterpret_cast<encode_report*>(at(64));
  refused("report in the input", [&] { encode(bitmap, map(0), to, {}, context); });
}

TEST_F(overlap, decode) {
  for (const char* name : kinds) {
    const encoding e = parse_encoding(name);
    const std::size_t size = encoded_bytes_bound(e, dtype::f32, count);
    const dtype type = e.kind == encoding_kind::sign_mask ? dtype::u8 : dtype::f32;
    const std::size_t dense = static_cast<std::size_t>(count) * size_of(type);
    refused(name, [&] {
      decode({e, map(0, {count}, 0, type).type, map(0, {count}, 0, type).dims, in(0)},
             map(0, {count}, 0, type), {}, context);
    });
    refused(name, [&] {
      decode({e, map(size - 4, {count}, 0, type).type, map(size - 4, {count}, 0, type).dims, in(0)},
             map(size - 4, {count}, 0, type), {}, context);
    });
    refused(name, [&] {
      decode({e, map(0, {count}, 0, type).type, map(0, {count}, 0, type).dims, in(dense - dense % 16 - 16)},
             map(0, {count}, 0, type), {}, context);
    });
    accepted(name, [&] {
      decode({e, map(8192, {count}, 0, type).type, map(8192, {count}, 0, type).dims, in(8192 - size, size)},
             map(8192, {count}, 0, type), {}, context);
    });
  }
}

TEST_F(overlap, arenas) {
  std::uint64_t claimed = 0, host_claimed = 0;
  for (const char* name : {"bitmap", "csr"}) {
    const encoding e = parse_encoding(name);
    const auto with = [&](overflow_arena arena, const char* what, bool legal) {
      const auto encoding_call = [&, arena] {
        encode(e, map(0), {at(8192), 4096, &arena, &report}, {}, context);
      };
      if (legal) {
        accepted(what, encoding_call);
      } else {
        refused(what, encoding_call);
      }
      claimed = host_claimed = 0;
    };
    with({at(32768), 1024, &claimed}, "separate arena", true);
    with({at(8192 + 1024), 1024, &claimed}, "arena in the slot", false);
    with({at(1024), 1024, &claimed}, "arena in the input", false);
    with({nullptr, 0, nullptr, at(1024), 1024, &host_claimed}, "host overflow in the input", false);
    with({at(32768), 1024, &claimed, at(32768 + 512), 1024, &host_claimed}, "one in the other", false);
    with({at(32768), 1024, reinterpret_cast<std::uint64_t*>(at(32768))}, "counter in the arena", false);
    with({at(32768), 1024, reinterpret_cast<std::uint64_t*>(at(8192))}, "counter in the slot", false);
    const overflow_arena in_output{at(1024), 1024, &claimed};
    refused("decode over its arena", [&] {
      decode({e, map(0).type, map(0).dims, {at(8192), 4096, &in_output, &report}}, map(0), {}, context);
    });
    refused("canonical over its arena", [&] {
      canonicalise({e, dtype::f32, {count}, {at(8192), 4096, &in_output, &report}}, out(0), context);
    });
  }
}

TEST_F(overlap, canonicalise) {
  for (const char* name : kinds) {
    const encoding e = parse_encoding(name);
    refused(name, [&] { canonicalise({e, dtype::f32, {count}, in(0)}, out(0), context); });
    refused(name, [&] { canonicalise({e, dtype::f32, {count}, in(0)}, out(16), context); });
    refused(name, [&] { canonicalise({e, dtype::f32, {count}, in(16)}, out(0), context); });
  }
}

TEST_F(overlap, element_wise_layers) {
  using forward = std::function<void(const const_tensor_view&, const tensor_view&, const encoded_view&)>;
  const forward forwards[] = {
      [&](const auto& x, const auto& y, const auto& mask) { relu_forward(x, y, mask, rule, context); },
      [&](const auto& x, const auto& y, const auto& mask) { leaky_relu_forward(x, y, mask, 0.1F, context); },
      [&](const auto& x, const auto& y, const auto& mask) { clip_forward(x, y, mask, 0, 6, rule, context); },
      [&](const auto& x, const auto& y, const auto& m) { dropout_forward(x, y, m, 0.5F, key, context); }};
  for (const forward& f : forwards) {
    const encoded_view none;
    accepted("in place", [&] { f(map(0), map(0), out(8192)); });
    accepted("in place, another shape", [&] { f(map(0, {150, 10}), map(0), none); });
    accepted("in place, pitched", [&] { f(map(0, {10, 10}, 12), map(0, {10, 10}, 12), none); });
    accepted("channels next to each other", [&] { f(map(0, {10, 10}, 20), map(40, {10, 10}, 20), none); });
    accepted("channels next to each other", [&] { f(map(40, {10, 10}, 20), map(0, {10, 10}, 20), none); });
    accepted("a pixel in a gap", [&] { f(map(0, {1, 8}, 20), map(48, {1, 8}, 9), none); });
    accepted("no elements", [&] { f(map(0, {0, 3}), map(0, {0, 3}, 4), none); });
    accepted("separate", [&] { f(map(0), map(count * 4), none); });
    refused("one element on", [&] { f(map(0), map(4), none); });
    refused("one element back", [&] { f(map(4), map(0), none); });
    refused("the last element", [&] { f(map(0), map(count * 4 - 4), none); });
    refused("another pitch", [&] { f(map(0, {10, 10}, 12), map(0, {10, 10}, 20), none); });
    refused("dense over pitched", [&] { f(map(0, {10, 10}, 12), map(0, {10, 10}), none); });
    refused("pixels of another length", [&] { f(map(0, {10, 10}, 20), map(0, {20, 5}, 20), none); });
    refused("a channel in common", [&] { f(map(0, {10, 10}, 20), map(36, {10, 10}, 20), none); });
    refused("a channel in common", [&] { f(map(36, {10, 10}, 20), map(0, {10, 10}, 20), none); });
    refused("a channel of the next pixel", [&] { f(map(0, {10, 11}, 20), map(40, {10, 11}, 20), none); });
    refused("one pixel on", [&] { f(map(0, {10, 10}, 20), map(80, {10, 10}, 20), none); });
    refused("mask in y", [&] { f(map(0), map(8192), out(8192 + 16)); });
    refused("mask in x", [&] { f(map(0), map(8192), out(16)); });
    refused("mask in both", [&] { f(map(0), map(0), out(16)); });
    // 16-bit maps are half as long.
    accepted("f16", [&] { f(map(0, {count}, 0, dtype::f16), map(count * 2, {count}, 0, dtype::f16), none); });
    refused("f16",
            [&] { f(map(0, {count}, 0, dtype::f16), map(count * 2 - 2, {count}, 0, dtype::f16), none); });
  }
}

TEST_F(overlap, element_wise_gradients) {
  const encoding sign = parse_encoding("sign_mask"), bitmap = parse_encoding("bitmap"),
                 range = parse_encoding("range_mask");
  using from_stash =
      std::function<void(const const_tensor_view&, const const_encoded_view&, const tensor_view&)>;
  const from_stash stashed[] = {
      [&](const auto& dy, const auto& s, const auto& dx) {
        relu_backward(dy, {sign, dy.type, dy.dims, s}, dx, rule, context);
      },
      [&](const auto& dy, const auto& s, const auto& dx) {
        relu_backward(dy, {bitmap, dy.type, dy.dims, s}, dx, rule, context);
      },
      [&](const auto& dy, const auto& s, const auto& dx) {
        leaky_relu_backward(dy, {sign, dy.type, dy.dims, s}, dx, 0.1F, context);
      },
      [&](const auto& dy, const auto& s, const auto& dx) {
        clip_backward(dy, {range, dy.type, dy.dims, s}, dx, 0, 6, rule, context);
      },
      [&](const auto& dy, const auto& s, const auto& dx) {
        dropout_backward(dy, {{.kind = encoding_kind::sign_mask}, dy.type, dy.dims, s}, dx, 0.5F, context);
      }};
  for (const from_stash& f : stashed) {
    accepted("in place", [&] { f(map(0), in(8192), map(0)); });
    accepted("separate", [&] { f(map(0), in(8192), map(16384)); });
    refused("shifted", [&] { f(map(0), in(8192), map(4)); });
    refused("stash in dx", [&] { f(map(0), in(8192 + 16), map(8192)); });
    refused("stash in dx and dy", [&] { f(map(0), in(0), map(0)); });
    accepted("stash in dy", [&] { f(map(0), in(0), map(16384)); });
  }
  using from_map =
      std::function<void(const const_tensor_view&, const const_tensor_view&, const tensor_view&)>;
  const from_map dense[] = {
      [&](const auto& dy, const auto& y, const auto& dx) { relu_backward(dy, y, dx, rule, context); },
      [&](const auto& dy, const auto& y, const auto& dx) { leaky_relu_backward(dy, y, dx, 0.1F, context); },
      [&](const auto& dy, const auto& y, const auto& dx) { clip_backward(dy, y, dx, 0, 6, rule, context); }};
  for (const from_map& f : dense) {
    accepted("in place", [&] { f(map(0), map(8192), map(0)); });
    accepted("dy is y", [&] { f(map(0), map(0), map(8192)); });
    refused("dx is y", [&] { f(map(0), map(8192), map(8192)); });
    refused("dx in y", [&] { f(map(0), map(8192), map(8196)); });
    refused("shifted", [&] { f(map(0), map(8192), map(4)); });
  }
  const auto by_key = [&](const auto& dy, const auto& dx) { dropout_backward(dy, dx, 0.5F, key, context); };
  accepted("in place", [&] { by_key(map(0), map(0)); });
  refused("shifted", [&] { by_key(map(0), map(4)); });
}

TEST_F(overlap, pooling) {
  const shape large{1, 4, 4, 4}, small{1, 2, 2, 4};
  pool_window first;
  first.layout = pool_layout::channels_first;
  encoding bitmap = parse_encoding("bitmap");
  // A layout for the fast loops, and one for the general ones.
  for (const pool_window& w : {pool_window{}, first}) {
    const shape l = w == first ? shape{1, 4, 4, 4} : large;
    const shape s = w == first ? shape{1, 4, 2, 2} : small;
    const auto x = [&](std::size_t offset) { return map(offset, l); };
    const auto y = [&](std::size_t offset) { return map(offset, s); };
    accepted("forward", [&] { max_pool_forward(x(0), y(256), w, out(1024), rule, context); });
    refused("x is y", [&] { max_pool_forward(x(0), y(0), w, {}, rule, context); });
    refused("x and y", [&] { max_pool_forward(x(0), y(252), w, {}, rule, context); });
    refused("index in y", [&] { max_pool_forward(x(0), y(1024), w, out(1024), rule, context); });
    refused("index in x", [&] { max_pool_forward(x(0), y(1024), w, out(16), rule, context); });
    const auto joint = [&](const encoded_view& code, const encoded_view& index, std::size_t to) {
      relu_max_pool_forward(x(0), y(to), w, code, index, rule, context);
    };
    accepted("joint", [&] { joint(out(2048), out(4096), 1024); });
    refused("joint: code is index", [&] { joint(out(2048), out(2048), 1024); });
    refused("joint: x is y", [&] { joint({}, {}, 0); });
    refused("joint: code in y", [&] { joint(out(1024), {}, 1024); });

    const auto& dy = y;
    const auto& dx = x;
    accepted("backward", [&] {
      max_pool_backward(dy(0), {window_index_of(w), dy(0).type, dy(0).dims, in(1024, 16)}, dx(2048), w,
                        context);
    });
    refused("dy is dx", [&] {
      max_pool_backward(dy(0), {window_index_of(w), dy(0).type, dy(0).dims, in(1024, 16)}, dx(0), w, context);
    });
    refused("index in dx", [&] {
      max_pool_backward(dy(0), {window_index_of(w), dy(0).type, dy(0).dims, in(2048, 16)}, dx(2048), w,
                        context);
    });
    refused("dx is x", [&] { max_pool_backward(dy(0), x(2048), dx(2048), w, rule, context); });
    refused("dy in dx", [&] { max_pool_backward(dy(0), x(2048), dx(16), w, rule, context); });
    refused("joint: dy is dx", [&] {
      relu_max_pool_backward(dy(0), {relu_pool_of(w), dy(0).type, dy(0).dims, in(1024)}, dx(0), w, context);
    });
    refused("joint: code in dx", [&] {
      relu_max_pool_backward(dy(0), {relu_pool_of(w), dy(0).type, dy(0).dims, in(1024)}, dx(1024), w,
                             context);
    });
    refused("joint: y in dx", [&] {
      relu_max_pool_backward(dy(0), {window_index_of(w), dy(0).type, dy(0).dims, in(1024)}, y(4096), dx(4096),
                             w, rule, context);
    });
    refused("joint: stash in dx", [&] {
      relu_max_pool_backward(dy(0), {window_index_of(w), dy(0).type, dy(0).dims, in(1024)},
                             {bitmap, dy(0).type, dy(0).dims, in(4096)}, dx(4096), w, rule, context);
    });
    refused("joint: dx is x", [&] { relu_max_pool_backward(dy(0), x(2048), dx(2048), w, rule, context); });
  }
}

TEST_F(overlap, export) {
  const encoding csr = parse_encoding("csr");
  encode(csr, map(0), out(8192), {}, context);
  report = {};
  auto* words = reinterpret_cast<std::uint32_t*>(at(32768));
  const auto to = [&](std::uint32_t* offsets, std::uint32_t* columns, void* values) {
    csr_export32({csr, dtype::f32, {count}, in(8192)}, {offsets, columns, values, dtype::f32, count},
                 context);
  };
  accepted("separate", [&] { to(words, words + 16, words + 2048); });
  refused("values over columns", [&] { to(words, words + 16, words + 32); });
  refused("columns over offsets", [&] { to(words, words + 6, words + 2048); });
  refused("values over the input", [&] { to(words, words + 16, at(8192)); });
}

TEST_F(overlap, count_in_its_report) {
  refused("report in the input", [&] {
    const size_query query(parse_encoding("bitmap"), map(0), reinterpret_cast<encode_report*>(at(64)),
                           context);
  });
}

class overlap_in_batches : public overlap {
 protected:
  /// Items that encode maps of 40 elements, one after another in memory, into slots in the other order.
  std::vector<encode_item> encode_items(std::size_t items) {
    reports.assign(items, {});
    std::vector<encode_item> all;
    for (std::size_t i = 0; i < items; ++i) {
      all.push_back({parse_encoding("bitmap"),
                     map(16 + i * 160, {40}),
                     {big.data() + (items - 1 - i) * 192, 192, nullptr, &reports[i]}});
      all.back().input.data = maps.data() + i * 160;
    }
    return all;
  }
  static constexpr std::size_t most = 700;
  guarded_buffer big{most * 192};
  guarded_buffer maps{most * 160};
  std::vector<encode_report> reports;
};

TEST_F(overlap_in_batches, encoding) {
  for (const std::size_t items : {2U, 3U, 40U, 256U, 700U}) {
    std::vector<encode_item> all = encode_items(items);
    accepted("separate", [&] { encode_batch(all, {}, context); });
    for (const std::size_t other : {std::size_t{0}, items / 2 - 1, items - 2}) {
      all = encode_items(items);
      all[items - 1].output.data = static_cast<std::uint8_t*>(all[other].output.data) + 16;
      refused("outputs", [&] { encode_batch(all, {}, context); });
      all[items - 1].output.data = all[other].output.data;
      refused("one output", [&] { encode_batch(all, {}, context); });
      all = encode_items(items);
      all[items - 1].input.data = all[other].output.data;
      refused("input of the last", [&] { encode_batch(all, {}, context); });
      all = encode_items(items);
      all[other].input.data = all[items - 1].output.data;
      refused("output of the last", [&] { encode_batch(all, {}, context); });
      all = encode_items(items);
      all[other].output.report = reinterpret_cast<encode_report*>(all[items - 1].output.data);
      refused("report", [&] { encode_batch(all, {}, context); });
      all = encode_items(items);
      all[other].input = all[items - 1].input;
      accepted("one input", [&] { encode_batch(all, {}, context); });
    }
  }
}

TEST_F(overlap_in_batches, arenas_and_reports_may_be_shared) {
  std::uint64_t claimed = 0, claimed_too = 0;
  const overflow_arena one{at(0), 1024, &claimed}, same{at(0), 1024, &claimed},
      shifted{at(512), 1024, &claimed_too};
  std::vector<encode_item> all = encode_items(4);
  for (encode_item& item : all) {
    item.output.overflow = &one;
    item.output.report = &report;
  }
  accepted("one arena, one report", [&] { encode_batch(all, {}, context); });
  all[2].output.overflow = &same;
  accepted("said twice", [&] { encode_batch(all, {}, context); });
  all[2].output.overflow = &shifted;
  refused("another one over it", [&] { encode_batch(all, {}, context); });
  all[2].output.overflow = &one;
  all[3].input.data = at(512);
  refused("input in it", [&] { encode_batch(all, {}, context); });
}

TEST_F(overlap_in_batches, decoding_into_channels_side_by_side) {
  std::vector<decode_item> all;
  reports.assign(5, {});
  for (std::size_t i = 0; i < 5; ++i) {
    all.push_back(
        {{parse_encoding("raw"), dtype::f32, {30, 4}, {big.data() + i * 512, 512, nullptr, &reports[i]}},
         map(i * 16, {30, 4}, 20)});
  }
  accepted("slices", [&] { decode_batch(all, {}, context); });
  all[3].output.data = at(2 * 16 + 4);
  refused("a channel in common", [&] { decode_batch(all, {}, context); });
  all[3].output.data = big.data() + 4 * 512;
  refused("over another input", [&] { decode_batch(all, {}, context); });
}

TEST_F(overlap, messages_name_both) {
  const auto message = [](const auto& call) {
    const std::string text = message_of(call);
    return text.substr(0, text.find(", got"));
  };
  EXPECT_EQ(message([&] { encode(parse_encoding("fp16"), map(0), out(16), {}, context); }),
            "encode: output: expected memory apart from input");
  EXPECT_EQ(message([&] {
              decode({parse_encoding("fp16"), map(16).type, map(16).dims, in(0)}, map(16), {}, context);
            }),
            "decode: output: expected memory apart from input");
  EXPECT_EQ(message([&] { relu_forward(map(0), map(4), {}, rule, context); }),
            "relu_forward: y: expected x itself with its pitch, or memory apart from x");
  encoded_view to = out(8192);
  to.report = reinterpret_cast<encode_report*>(at(64));
  EXPECT_EQ(message([&] { encode(parse_encoding("fp16"), map(0), to, {}, context); }),
            "encode: output.report: expected memory apart from input");
  encode_report other;
  std::vector<encode_item> items{{parse_encoding("raw"), map(0), out(8192)},
                                 {parse_encoding("raw"), map(16384), {at(16), 6016, nullptr, &other}}};
  EXPECT_EQ(message([&] { encode_batch(items, {}, context); }),
            "encode_batch: items[1]: output: expected memory apart from items[0].input");
}

}  // namespace
