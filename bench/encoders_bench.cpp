// Every encoding and every layer that reads or writes one, on one thread. Beside time and rate:
//   of_memcpy  how fast it is, with 1 = a memcpy that moves as many bytes, measured in the same process on
//              buffers of the same size (what is read and what is written, each once, is "moved")
//   ratio      dense bytes / encoded bytes

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "stash/stash.hpp"

namespace stash {
namespace {

using bytes = std::vector<unsigned char>;

/// Processor time of this thread, in seconds: other work on the machine does not count.
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Seconds of a memcpy that reads and writes `moved` bytes together; the median of several tries.
double memcpy_seconds(std::size_t moved) {
  static std::map<std::size_t, double> known;
  if (const auto found = known.find(moved); found != known.end()) return found->second;
  const std::size_t size = moved / 2;
  bytes from(size, 1), to(size, 2);
  const auto repeats = static_cast<int>(std::max<std::size_t>(1, (std::size_t{8} << 20) / (size + 1)));
  std::vector<double> tries;
  for (int t = 0; t < 9; ++t) {
    const double start = now();
    for (int i = 0; i < repeats; ++i) {
      std::memcpy(to.data(), from.data(), size);
      benchmark::DoNotOptimize(to.data());
      benchmark::ClobberMemory();
    }
    tries.push_back((now() - start) / repeats);
  }
  std::nth_element(tries.begin(), tries.begin() + 4, tries.end());
  return known[moved] = tries[4];
}

/// Runs `work` and reports against `moved` bytes; `ratio` 0 means that nothing is encoded.
template <class Work>
void measure(benchmark::State& state, std::size_t moved, double ratio, Work work) {
  const double copying = memcpy_seconds(moved);
  const double start = now();
  for ([[maybe_unused]] auto iteration : state) {
    work();
    benchmark::ClobberMemory();
  }
  const double seconds = (now() - start) / static_cast<double>(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(moved));
  state.counters["of_memcpy"] = copying / seconds;
  if (ratio > 0) state.counters["ratio"] = ratio;
}

/// One size and density of a benchmark: maps of 64 channels with the given share of positive values.
struct maps {
  std::int64_t elements;
  shape wide, pooled;
  std::vector<float> x, y, small;  ///< before the ReLU, after it; room for the pooled map
  std::vector<float> out;

  explicit maps(const benchmark::State& state)
      : elements(state.range(0) * 256),
        wide({1, elements / 64 / 16, 16, 64}),
        pooled({1, elements / 64 / 32, 8, 64}),
        x(static_cast<std::size_t>(elements)),
        y(x.size()),
        small(x.size() / 4, 1.0F),
        out(x.size()) {
    const double density = static_cast<double>(state.range(1)) / 100;
    std::mt19937 random(7);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float size = static_cast<float>(random() % 4096 + 1) / 1024;
      x[i] = static_cast<double>(random() % 4096) < density * 4096 ? size : -size;
      y[i] = std::max(x[i], 0.0F);
    }
  }

  std::size_t dense_bytes() const { return x.size() * sizeof(float); }
  static const_tensor_view view(const std::vector<float>& v, const shape& s) {
    return {v.data(), dtype::f32, memory_space::host, s, 0};
  }
  static tensor_view view(std::vector<float>& v, const shape& s) {
    return {v.data(), dtype::f32, memory_space::host, s, 0};
  }
};

/// Room for an encoded form.
struct stored {
  encoding e;
  bytes data;
  encode_report report;

  stored(const encoding& which, std::int64_t elements, double density = 1)
      : e(which), data(encoded_bytes_at_density(which, dtype::f32, elements, density) + encoded_alignment) {}
  std::size_t size() const { return data.size() - encoded_alignment; }
  void* begin() {
    const auto address = reinterpret_cast<std::uintptr_t>(data.data());
    return data.data() + (encoded_alignment - address % encoded_alignment) % encoded_alignment;
  }
  encoded_view to() {
    report = {};
    return {begin(), size(), nullptr, &report};
  }
  const_encoded_view from() { return {begin(), size(), nullptr, &report}; }
};

constexpr pool_window window;
constexpr framework_rule rule = framework_rule::tensorflow;
constexpr encoding mask_encoding{.kind = encoding_kind::sign_mask};
constexpr encoding index_encoding{.kind = encoding_kind::window_index, .window_cells = 4};
constexpr encoding code_encoding{.kind = encoding_kind::relu_pool, .window_cells = 4};

double ratio(const maps& m, const stored& s) {
  return static_cast<double>(m.dense_bytes()) / static_cast<double>(s.size());
}

/// The stored form of the map after the ReLU, as large as its values need.
stored room_for(const maps& m, const encoding& e) {
  stored s(e, m.elements);
  s.data.resize(encoded_bytes_exact(e, maps::view(m.y, m.wide), {}) + encoded_alignment);
  return s;
}

void encode_map(benchmark::State& state, const encoding& e) {
  maps m(state);
  stored s = room_for(m, e);
  measure(state, m.dense_bytes() + s.size(), ratio(m, s),
          [&] { encode(e, maps::view(m.y, m.wide), s.to(), {}, {}); });
}

void decode_map(benchmark::State& state, const encoding& e) {
  maps m(state);
  stored s = room_for(m, e);
  encode(e, maps::view(m.y, m.wide), s.to(), {}, {});
  measure(state, m.dense_bytes() + s.size(), ratio(m, s),
          [&] { decode(e, s.from(), maps::view(m.out, m.wide), {}, {}); });
}

void relu(benchmark::State& state, bool with_mask) {
  maps m(state);
  stored s(mask_encoding, m.elements);
  const std::size_t written = m.dense_bytes() + (with_mask ? s.size() : 0);
  measure(state, m.dense_bytes() + written, with_mask ? ratio(m, s) : 0, [&] {
    relu_forward(maps::view(m.x, m.wide), maps::view(m.out, m.wide), with_mask ? s.to() : encoded_view{},
                 rule, {});
  });
}

void relu_gradient(benchmark::State& state) {
  maps m(state);
  measure(state, 3 * m.dense_bytes(), 0, [&] {
    relu_backward(maps::view(m.x, m.wide), maps::view(m.y, m.wide), maps::view(m.out, m.wide), rule, {});
  });
}

void relu_gradient_from(benchmark::State& state, const encoding& e) {
  maps m(state);
  stored s = room_for(m, e);
  encode(e, maps::view(m.y, m.wide), s.to(), {}, {});
  // Only the mask plane of a bitmap is read.
  const std::size_t read = e.kind == encoding_kind::bitmap ? m.x.size() / 8 : s.size();
  measure(state, 2 * m.dense_bytes() + read, ratio(m, s),
          [&] { relu_backward(maps::view(m.x, m.wide), e, s.from(), maps::view(m.out, m.wide), rule, {}); });
}

enum class pooling { plain, index, relu_plain, relu_code };

stored room_for(const maps& m, pooling kind) {
  return {kind == pooling::relu_code ? code_encoding : index_encoding, m.elements / 4};
}

void pool_into(const maps& m, std::vector<float>& y, pooling kind, stored& s) {
  const const_tensor_view x = maps::view(m.x, m.wide);
  const tensor_view to = maps::view(y, m.pooled);
  switch (kind) {
    case pooling::plain:
      return max_pool_forward(x, to, window, {}, rule, {});
    case pooling::index:
      return max_pool_forward(x, to, window, s.to(), rule, {});
    case pooling::relu_plain:
      return relu_max_pool_forward(x, to, window, {}, {}, rule, {});
    case pooling::relu_code:
      return relu_max_pool_forward(x, to, window, s.to(), {}, rule, {});
  }
}

bool writes_code(pooling kind) {
  return kind == pooling::index || kind == pooling::relu_code;
}

void pool(benchmark::State& state, pooling kind) {
  maps m(state);
  stored s = room_for(m, kind);
  const std::size_t moved = m.dense_bytes() * 5 / 4 + (writes_code(kind) ? s.size() : 0);
  measure(state, moved, writes_code(kind) ? ratio(m, s) : 0, [&] { pool_into(m, m.small, kind, s); });
}

void pool_gradient(benchmark::State& state, pooling kind) {
  maps m(state);
  stored s = room_for(m, kind);
  std::vector<float> y(m.small.size());
  pool_into(m, y, kind, s);
  const const_tensor_view dy = maps::view(std::as_const(m.small), m.pooled);
  const const_tensor_view x = maps::view(std::as_const(m.x), m.wide);
  const tensor_view dx = maps::view(m.out, m.wide);
  const std::size_t moved = m.dense_bytes() * 5 / 4 + (writes_code(kind) ? s.size() : m.dense_bytes());
  measure(state, moved, writes_code(kind) ? ratio(m, s) : 0, [&] {
    switch (kind) {
      case pooling::plain:
        return max_pool_backward(dy, x, dx, window, rule, {});
      case pooling::index:
        return max_pool_backward(dy, s.from(), dx, window, {});
      case pooling::relu_plain:
        return relu_max_pool_backward(dy, x, dx, window, rule, {});
      case pooling::relu_code:
        return relu_max_pool_backward(dy, s.from(), dx, window, {});
    }
  });
}

constexpr dropout_key key{1, 2, 3};

void dropout(benchmark::State& state) {
  maps m(state);
  stored s(mask_encoding, m.elements);
  const auto drop = 1.0F - static_cast<float>(state.range(1)) / 100;
  measure(state, 2 * m.dense_bytes() + s.size(), ratio(m, s), [&] {
    dropout_forward(maps::view(m.y, m.wide), maps::view(m.out, m.wide), s.to(), drop, key, {});
  });
}

void dropout_gradient(benchmark::State& state, bool from_mask) {
  maps m(state);
  stored s(mask_encoding, m.elements);
  const auto drop = 1.0F - static_cast<float>(state.range(1)) / 100;
  dropout_forward(maps::view(m.y, m.wide), maps::view(m.out, m.wide), s.to(), drop, key, {});
  const const_tensor_view dy = maps::view(std::as_const(m.x), m.wide);
  const tensor_view dx = maps::view(m.out, m.wide);
  measure(state, 2 * m.dense_bytes() + (from_mask ? s.size() : 0), from_mask ? ratio(m, s) : 0, [&] {
    if (from_mask) {
      dropout_backward(dy, s.from(), dx, drop, {});
    } else {
      dropout_backward(dy, dx, drop, key, {});
    }
  });
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->ArgNames({"KiB", "density%"})
      ->ArgsProduct({{64, 1024, 65536}, {20, 50}});
}

[[maybe_unused]] const bool registered = [] {
  for (const char* const name :
       {"raw", "sign_mask", "range_mask", "bitmap", "bitmap_fp16", "bitmap_fp8", "csr", "csr_fp8", "fp16",
        "bf16", "fp10", "fp8", "fp8_e5m2", "mxfp8_e4m3", "mxfp6_e2m3", "mxfp4_e2m1"}) {
    encoding e = parse_encoding(name);
    if (e.values != value_format::source) e.underflow = underflow_rule::keep_nonzero;
    const std::string label = name;
    add("encode/" + label, [e](benchmark::State& s) { encode_map(s, e); });
    const bool mask = e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask;
    if (!mask) {
      add("decode/" + label, [e](benchmark::State& s) { decode_map(s, e); });
    }
    if (e.kind != encoding_kind::raw && e.kind != encoding_kind::range_mask)
      add("relu_backward/" + label, [e](benchmark::State& s) { relu_gradient_from(s, e); });
  }
  add("relu_backward/y", relu_gradient);
  add("relu_forward/no_stash", [](benchmark::State& s) { relu(s, false); });
  add("relu_forward/sign_mask", [](benchmark::State& s) { relu(s, true); });
  const std::pair<const char*, pooling> kinds[] = {{"max_pool/x", pooling::plain},
                                                   {"max_pool/window_index", pooling::index},
                                                   {"relu_max_pool/x", pooling::relu_plain},
                                                   {"relu_max_pool/relu_pool", pooling::relu_code}};
  for (const auto& [name, kind] : kinds) {
    add(std::string("forward/") + name, [k = kind](benchmark::State& s) { pool(s, k); });
    add(std::string("backward/") + name, [k = kind](benchmark::State& s) { pool_gradient(s, k); });
  }
  add("dropout_forward/sign_mask", dropout);
  add("dropout_backward/sign_mask", [](benchmark::State& s) { dropout_gradient(s, true); });
  add("dropout_backward/key", [](benchmark::State& s) { dropout_gradient(s, false); });
  return true;
}();

}  // namespace
}  // namespace stash
