// SPDX-License-Identifier: Apache-2.0
// Memory and the public calls of the encoders: non-owning calls and the layers allocate nothing; what has to
// allocate, texts and the messages of errors, survives every allocation that fails.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stash/batch.hpp"
#include "stash/cpu.hpp"
#include "stash/csr.hpp"
#include "stash/dropout.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"
#include "support/failing_allocations.hpp"
#include "support/format_names.hpp"

namespace stash {
namespace {

using stash_test::allocations_in;
using stash_test::fail_every_allocation;

std::vector<std::string> encoding_names() {
  return stash_test::names_of_all_values({"raw", "sign_mask", "range_mask", "bitmap", "csr"});
}

/// Tensors of one shape, filled with numbers of either sign and zeros, and memory for encoded bytes.
struct memory {
  static constexpr std::int64_t elements = 2 * 8 * 8 * 16;
  alignas(64) std::array<float, elements> x{}, y{}, dy{}, dx{};
  alignas(64) std::array<std::uint8_t, 4 * elements + 4096> stored{}, canonical{}, codes{};
  std::array<std::uint32_t, elements> offsets{}, columns{};
  std::array<std::int64_t, elements> positions{};
  encode_report report, canonical_report, code_report;

  memory() {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = i % 3 == 0 ? 0.0F : static_cast<float>(i % 17) - 8.0F;
      dy[i] = 1.0F;
    }
  }
  static tensor_view view(std::array<float, elements>& values) {
    return {values.data(), dtype::f32, memory_space::host, {2, 8, 8, 16}};
  }
  encoded_view out() { return {stored.data(), stored.size(), nullptr, &report}; }
  const_encoded_view in() { return {stored.data(), stored.size(), nullptr, &report}; }
};

TEST(allocation_failure, non_owning_does_not_allocate) {
  memory m;
  for (const std::string& name : encoding_names()) {
    SCOPED_TRACE(name);
    encoding e = parse_encoding(name);
    e.underflow = underflow_rule::keep_nonzero;
    const bool mask = e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask;
    const tensor_view back{m.y.data(), mask ? dtype::u8 : dtype::f32, memory_space::host, {memory::elements}};
    m.report = m.canonical_report = {};
    const std::map<std::string, std::function<void()>> calls{
        {"1 bound", [&] { encoded_bytes_bound(e, dtype::f32, memory::elements); }},
        {"2 at density", [&] { encoded_bytes_at_density(e, dtype::f32, memory::elements, 0.5); }},
        {"3 exact", [&] { encoded_bytes_exact(e, memory::view(m.x), {}); }},
        {"4 workspace", [&] { workspace_bytes(e, dtype::f32, memory::elements); }},
        {"5 encode", [&] { encode(e, memory::view(m.x), m.out(), {}, {}); }},
        {"6 decode",
         [&] {
           decode({e, back.type, back.dims, m.in()}, back, {}, {});
         }},
        {"7 canonicalise",
         [&] {
           canonicalise({e, dtype::f32, {memory::elements}, m.in()},
                        {m.canonical.data(), m.canonical.size(), nullptr, &m.canonical_report}, {});
         }},
        {"8 batches", [&] {
           const encode_item item{e, memory::view(m.x), m.out()};
           encode_batch({&item, 1}, {}, {});
           const decode_item reverse{{e, back.type, back.dims, m.in()}, back};
           decode_batch({&reverse, 1}, {}, {});
         }}};
    for (const auto& [what, call] : calls)
      EXPECT_EQ(allocations_in(call), 0) << what;
    if (e.kind == encoding_kind::csr) {
      EXPECT_EQ(allocations_in([&] {
                  csr_export32({e, dtype::f32, {memory::elements}, m.in()},
                               {m.offsets.data(), m.columns.data(), m.y.data(), dtype::f32, memory::elements},
                               {});
                }),
                0);
    }
    EXPECT_EQ(m.report.status | m.canonical_report.status, status_ok);
  }
}

TEST(allocation_failure, layers_do_not_allocate) {
  memory m;
  const encoding mask = parse_encoding("sign_mask"), range = parse_encoding("range_mask");
  const pool_window window;
  const tensor_view x = memory::view(m.x), y = memory::view(m.y), dy = memory::view(m.dy),
                    dx = memory::view(m.dx);
  const tensor_view pooled{m.y.data(), dtype::f32, memory_space::host, {2, 4, 4, 16}};
  const tensor_view pooled_dy{m.dy.data(), dtype::f32, memory_space::host, {2, 4, 4, 16}};
  const encoded_view code{m.codes.data(), m.codes.size(), nullptr, &m.code_report};
  const const_encoded_view code_in{m.codes.data(), m.codes.size(), nullptr, &m.code_report};
  const auto rule = framework_rule::tensorflow;
  const dropout_key key{1, 2, 3};
  const std::map<std::string, std::function<void()>> calls{
      {"relu",
       [&] {
         relu_forward(x, y, m.out(), rule, {});
         relu_backward(dy, {mask, dy.type, dy.dims, m.in()}, dx, rule, {});
         relu_backward(dy, y, dx, rule, {});
       }},
      {"leaky relu",
       [&] {
         leaky_relu_forward(x, y, m.out(), 0.1F, {});
         leaky_relu_backward(dy, {mask, dy.type, dy.dims, m.in()}, dx, 0.1F, {});
         leaky_relu_backward(dy, x, dx, 0.1F, {});
       }},
      {"clip",
       [&] {
         clip_forward(x, y, m.out(), 0, 6, rule, {});
         clip_backward(dy, {range, dy.type, dy.dims, m.in()}, dx, 0, 6, rule, {});
         clip_backward(dy, x, dx, 0, 6, rule, {});
       }},
      {"dropout",
       [&] {
         dropout_forward(x, y, m.out(), 0.5F, key, {});
         dropout_backward(dy, {{.kind = encoding_kind::sign_mask}, dy.type, dy.dims, m.in()}, dx, 0.5F, {});
         dropout_backward(dy, dx, 0.5F, key, {});
       }},
      {"max pool",
       [&] {
         max_pool_forward(x, pooled, window, code, rule, {});
         max_pool_backward(pooled_dy, {window_index_of(window), pooled_dy.type, pooled_dy.dims, code_in}, dx,
                           window, {});
         max_pool_backward(pooled_dy, x, dx, window, rule, {});
         const shape full{2, 8, 8, 16};
         max_pool_forward(x, pooled, window, code, rule, {});
         decode_window_index({window_index_of(window), dtype::f32, pooled.dims, code_in}, full, window,
                             m.positions.data(), {});
         encode_window_index(m.positions.data(), pooled.dims, full, window, code, {});
       }},
      {"relu and max pool", [&] {
         relu_max_pool_forward(x, pooled, window, code, {}, rule, {});
         relu_max_pool_backward(pooled_dy, {relu_pool_of(window), pooled_dy.type, pooled_dy.dims, code_in},
                                dx, window, {});
         relu_max_pool_forward(x, pooled, window, {}, code, rule, {});
         relu_max_pool_backward(pooled_dy, {window_index_of(window), pooled_dy.type, pooled_dy.dims, code_in},
                                pooled, dx, window, rule, {});
         relu_max_pool_backward(pooled_dy, x, dx, window, rule, {});
         encode(mask, pooled, m.out(), {}, {});
         relu_max_pool_backward(pooled_dy, {window_index_of(window), pooled_dy.type, pooled_dy.dims, code_in},
                                {mask, pooled_dy.type, pooled_dy.dims, m.in()}, dx, window, rule, {});
       }}};
  for (const auto& [what, call] : calls)
    EXPECT_EQ(allocations_in(call), 0) << what;
  EXPECT_EQ(m.report.status | m.code_report.status, status_ok);
}

bool nothing_to_change() {
  return true;
}

TEST(allocation_failure, texts) {
  for (const std::string& name : encoding_names()) {
    const encoding e = parse_encoding(name);
    fail_every_allocation(
        [&] {
          const std::string text = to_string(e);
          EXPECT_EQ(text, name);
        },
        nothing_to_change);
    EXPECT_EQ(allocations_in([&] { parse_encoding(name); }), 0);
  }
}

TEST(allocation_failure, processor_targets) {
  const std::vector<std::string> known = cpu_targets();
  const std::string chosen = cpu_target();
  const auto as_it_was = [&] { return cpu_target() == chosen; };
  EXPECT_GT(fail_every_allocation(
                [&] {
                  const std::vector<std::string> names = cpu_targets();
                  EXPECT_EQ(names, known);
                },
                as_it_was),
            0);
  EXPECT_GT(fail_every_allocation(
                [&] {
                  try {
                    set_cpu_target("abacus");
                    ADD_FAILURE() << "accepted";
                  } catch (const error& e) {
                    if (e.code() != errc::invalid_argument) throw;
                  }
                },
                as_it_was),
            0);
  EXPECT_EQ(allocations_in([&] { set_cpu_target(chosen); }), 0);
}

/// Every call that refuses its arguments makes a message: it must do without memory too, and write nothing
/// either way.
TEST(allocation_failure, messages_of_errors) {
  memory m;
  encoding bitmap = parse_encoding("bitmap_mxfp8_e4m3"), cast = parse_encoding("fp8"), wrong;
  wrong.kind = static_cast<encoding_kind>(99);
  const tensor_view x = memory::view(m.x), y = memory::view(m.y), dy = memory::view(m.dy),
                    dx = memory::view(m.dx);
  const encoded_view too_small{m.stored.data(), 16, nullptr, &m.report};
  const const_encoded_view short_input{m.stored.data(), 16, nullptr, &m.report};
  const pool_window window;
  const auto rule = framework_rule::pytorch;
  const encode_item encode_items[] = {{cast, x, m.out()}, {cast, x, too_small}};
  const decode_item decode_items[] = {{{cast, y.type, y.dims, m.in()}, y},
                                      {{cast, y.type, y.dims, short_input}, y}};
  const std::map<std::string, std::function<void()>> calls{
      {"shape",
       [] {
         shape({1, -1});
       }},
      {"parse_encoding", [] { parse_encoding("bitmap_of_something"); }},
      {"to_string", [&] { to_string(wrong); }},
      {"encoded_bytes_bound", [&] { encoded_bytes_bound(bitmap, dtype::u8, 1); }},
      {"encoded_bytes_at_density", [&] { encoded_bytes_at_density(bitmap, dtype::f32, 1, 2.0); }},
      {"encoded_bytes_exact", [&] { encoded_bytes_exact(wrong, x, {}); }},
      {"workspace_bytes", [&] { workspace_bytes(bitmap, dtype::f32, -1); }},
      {"encode", [&] { encode(bitmap, x, too_small, {}, {}); }},
      {"decode",
       [&] {
         decode({bitmap, y.type, y.dims, short_input}, y, {}, {});
       }},
      {"canonicalise",
       [&] {
         canonicalise({cast, dtype::f32, {memory::elements}, m.in()}, too_small, {});
       }},
      {"encode_batch", [&] { encode_batch(encode_items, {}, {}); }},
      {"decode_batch", [&] { decode_batch(decode_items, {}, {}); }},
      {"csr_export32",
       [&] {
         csr_export32({cast, dtype::f32, {memory::elements}, m.in()}, {}, {});
       }},
      {"relu_forward", [&] { relu_forward(x, y, too_small, rule, {}); }},
      {"relu_backward",
       [&] {
         relu_backward(dy, {cast, dy.type, dy.dims, m.in()}, dx, rule, {});
       }},
      {"leaky_relu_backward",
       [&] {
         leaky_relu_backward(dy, {bitmap, dy.type, dy.dims, short_input}, dx, 0.1F, {});
       }},
      {"clip_backward",
       [&] {
         clip_backward(dy, {cast, dy.type, dy.dims, m.in()}, dx, 0, 6, rule, {});
       }},
      {"dropout_forward", [&] { dropout_forward(x, y, too_small, 1.5F, {}, {}); }},
      {"dropout_backward",
       [&] {
         dropout_backward(dy, {{.kind = encoding_kind::sign_mask}, dy.type, dy.dims, short_input}, dx, 0.5F,
                          {});
       }},
      {"max_pool_forward", [&] { max_pool_forward(x, y, window, too_small, rule, {}); }},
      {"max_pool_backward",
       [&] {
         max_pool_backward(dy, {window_index_of(window), dy.type, dy.dims, short_input}, dx, window, {});
       }},
      {"relu_max_pool_backward", [&] {
         relu_max_pool_backward(dy, {relu_pool_of(window), dy.type, dy.dims, short_input}, dx, window, {});
       }}};
  for (const auto& each : calls) {
    const auto& what = each.first;
    const auto& call = each.second;
    SCOPED_TRACE(what);
    const auto untouched = [&] {
      const auto zeros = [](const auto& all) {
        return std::all_of(all.begin(), all.end(), [](auto value) { return value == 0; });
      };
      const encode_report fresh;
      return zeros(m.stored) && zeros(m.y) && zeros(m.dx) &&
             std::memcmp(&m.report, &fresh, sizeof fresh) == 0;
    };
    const std::int64_t allocations = fail_every_allocation(
        [&] {
          try {
            call();
            ADD_FAILURE() << "accepted";
          } catch (const error& e) {
            if (e.code() == errc::out_of_memory) throw;
            EXPECT_TRUE(std::string_view(e.what()).starts_with(what)) << e.what();
          }
        },
        untouched);
    EXPECT_GT(allocations, 0);
    EXPECT_TRUE(untouched());
  }
}

}  // namespace
}  // namespace stash
