// SPDX-License-Identifier: Apache-2.0
// What a call costs on small maps, where its checks weigh as much as its work: nanoseconds per call through
// the C++ and the C API next to a copy of the map, on one thread. Rounds go through all calls in turn, and
// the median round counts. Run it on one core: taskset -c 1 small_calls_bench.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/tensors.hpp"
#include "bench/cases/timing.hpp"
#include "stash/c_api.h"
#include "stash/error.hpp"
#include "stash/relu.hpp"
#include "stash/stashed_tensor.hpp"

namespace stash::bench {
namespace {

/// Half of the values are zero, in no order that a processor could learn.
void fill(tensor& t) {
  std::uint32_t state = 1;
  for (float& v : t.values()) {
    state = state * 1664525U + 1013904223U;
    v = (state >> 31) != 0 ? static_cast<float>(state >> 8) * 0x1p-24F : 0.0F;
  }
}

void expect_ok(std::int32_t code) {
  if (code != STASH_OK) throw error(static_cast<errc>(code), stash_last_error_message());
}

stash_tensor_view c_view(const tensor_view& from) {
  stash_tensor_view c = STASH_INIT(stash_tensor_view);
  c.data = from.data;
  c.rank = from.dims.rank();
  for (int axis = 0; axis < c.rank; ++axis)
    c.dims[axis] = from.dims[axis];
  return c;
}

/// A map, another of its size, and both as C structures.
struct maps {
  explicit maps(std::int64_t bytes) : x({bytes / 256, 64}), y({bytes / 256, 64}) {
    fill(x);
    c_x = c_view(x.view());
    c_y = c_view(y.view());
  }
  tensor x, y;
  stash_tensor_view c_x, c_y;
};

struct encoded_map {
  encoded_map(const char* name, const maps& m)
      : how(parse_encoding(name)), bytes(how, encoded_bytes_bound(how, dtype::f32, m.x.elements())) {
    expect_ok(stash_parse_encoding(name, &c_how));
    const encoded_view v = bytes.write();
    c_bytes.data = v.data;
    c_bytes.bytes = v.bytes;
    c_bytes.report = &c_report;
    encode(how, m.x.read(), v, {}, {});
    c_stored.encoding = &c_how;
    c_stored.rank = m.c_x.rank;
    std::memcpy(c_stored.dims, m.c_x.dims, sizeof c_stored.dims);
    c_stored.bytes = &c_bytes;
  }
  encoding how;
  encoded bytes;
  stash_encoding c_how = STASH_INIT(stash_encoding);
  stash_encode_report c_report{};
  stash_encoded_view c_bytes = STASH_INIT(stash_encoded_view);
  stash_encoded_tensor c_stored = STASH_INIT(stash_encoded_tensor);
};

struct line {
  std::string name;
  std::function<void()> cpp, c;
};

line relu_line(const std::shared_ptr<maps>& m) {
  return {"relu_forward", [m] { relu_forward(m->x.read(), m->y.view(), {}, framework_rule::tensorflow, {}); },
          [m] { expect_ok(stash_relu_forward(&m->c_x, &m->c_y, nullptr, STASH_RULE_TENSORFLOW, nullptr)); }};
}

void add_encoding(std::vector<line>& lines, const char* name, const std::shared_ptr<maps>& m) {
  const auto e = std::make_shared<encoded_map>(name, *m);
  lines.push_back({fmt::format("encode {}", name),
                   [m, e] { encode(e->how, m->x.read(), e->bytes.write(), {}, {}); },
                   [m, e] {
                     e->c_report = {};
                     expect_ok(stash_encode(&e->c_how, &m->c_x, &e->c_bytes, nullptr, nullptr));
                   }});
  lines.push_back({fmt::format("decode {}", name),
                   [m, e] {
                     decode({e->how, dtype::f32, m->x.view().dims, e->bytes.read()}, m->y.view(), {}, {});
                   },
                   [m, e] { expect_ok(stash_decode(&e->c_stored, &m->c_y, nullptr, nullptr)); }});
}

/// Makes a handle; with `restored` it is decoded, too.
line handle_line(const char* name, const std::shared_ptr<maps>& m, bool restored) {
  const encoding how = parse_encoding(name);
  stash_encoding c_how = STASH_INIT(stash_encoding);
  expect_ok(stash_parse_encoding(name, &c_how));
  return {fmt::format("handle {}{}", name, restored ? ", restored" : ""),
          [=] {
            const stashed_tensor kept(how, m->x.read());
            if (restored) kept.restore(m->y.view());
          },
          [=] {
            stash_handle* kept = nullptr;
            expect_ok(stash_handle_create(&c_how, &m->c_x, nullptr, nullptr, &kept));
            const std::unique_ptr<stash_handle, void (*)(stash_handle*)> owner(kept, stash_handle_destroy);
            if (restored) expect_ok(stash_handle_restore(kept, &m->c_y, nullptr));
          }};
}

std::vector<line> lines_of(const std::shared_ptr<maps>& m) {
  std::vector<line> lines{relu_line(m)};
  for (const char* const name : {"bitmap", "csr", "fp8"})
    add_encoding(lines, name, m);
  for (const char* const name : {"bitmap", "fp8"}) {
    for (const bool restored : {false, true})
      lines.push_back(handle_line(name, m, restored));
  }
  return lines;
}

void measure(std::int64_t bytes, int rounds) {
  const auto m = std::make_shared<maps>(bytes);
  interleaved_timing timing(true);
  const auto copy = timing.add(
      [m] { std::memcpy(m->y.view().data, m->x.read().data, static_cast<std::size_t>(m->x.bytes())); });
  const std::vector<line> lines = lines_of(m);
  std::vector<std::pair<std::size_t, std::size_t>> calls;
  calls.reserve(lines.size());
  for (const line& l : lines)
    calls.emplace_back(timing.add(l.cpp), timing.add(l.c));
  for (int i = 0; i < rounds; ++i)
    timing.round();
  const auto nanoseconds = [&](std::size_t call) { return 1e9 * timing.median_seconds(call); };
  fmt::print("{} KiB: a copy takes {:.1f} ns\n  {:<26} {:>10} {:>10} {:>16}\n", bytes / 1024,
             nanoseconds(copy), "call", "C++ ns", "C ns", "copy / C++, %");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto [cpp, c] = calls[i];
    fmt::print("  {:<26} {:>10.1f} {:>10.1f} {:>16.1f}\n", lines[i].name, nanoseconds(cpp), nanoseconds(c),
               100.0 * timing.median_speed(cpp, copy));
  }
}

}  // namespace
}  // namespace stash::bench

int main(int argc, char** argv) {
  CLI::App app{"Nanoseconds per call on small maps"};
  int rounds = 101;
  std::vector<std::int64_t> sizes{1, 64};
  app.add_option("--rounds", rounds, "that the medians are of")->check(CLI::PositiveNumber);
  app.add_option("--kib", sizes, "sizes of the maps")->check(CLI::Range(1, 1 << 20));
  CLI11_PARSE(app, argc, argv);
  try {
    for (const std::int64_t size : sizes)
      stash::bench::measure(size * 1024, rounds);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "small_calls_bench: %s\n", e.what());
    return 2;
  }
}
