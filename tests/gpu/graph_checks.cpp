// SPDX-License-Identifier: Apache-2.0
// Recorded graphs of calls on encoded bytes: canonical order, slots that overflow, batches, canonicalise and
// the export of csr. What else can be recorded: stream_checks.cpp, graph_layer_checks.cpp.

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "gpu/checks.hpp"
#include "gpu/replay.hpp"
#include "stash/batch.hpp"
#include "stash/csr.hpp"

namespace stash::gpu {
namespace {

using test::generator;
using test::pair_under_test;

execution_context context_of(void* stream, bool canonical) {
  execution_context c = device_context(stream);
  c.canonical = canonical;
  return c;
}

std::vector<std::uint8_t> bytes_of(const test::buffer& b) {
  return {b.data(), b.data() + b.size()};
}

/// A region in device memory and one in host memory for what a slot does not hold, each with its counter.
class overflow_memory {
 public:
  overflow_memory(buffer_mode mode, std::size_t bytes, std::size_t host_bytes)
      : arena_(mode, bytes), claimed_(mode, 2 * sizeof(std::uint64_t)), host_(host_bytes) {
    auto* const counters = reinterpret_cast<std::uint64_t*>(claimed_.data());
    view_ = {arena_.data(), arena_.size(), counters, host_.bytes(), host_.size(), counters + 1};
  }
  overflow_memory(const overflow_memory&) = delete;
  overflow_memory& operator=(const overflow_memory&) = delete;

  const overflow_arena* view() const { return &view_; }
  void enqueue_clear(void* stream) const { fill(claimed_.data(), 0, claimed_.size(), stream); }
  void expect_guards() const { arena_.expect_guards("arena"); }

 private:
  device_buffer arena_, claimed_;
  pinned host_;
  overflow_arena view_;
};

/// Where csr_export32() writes.
struct export_arrays {
  export_arrays(buffer_mode mode, dtype t, std::int64_t n)
      : type(t),
        entries(n),
        offsets(mode, static_cast<std::size_t>((n + 255) / 256 + 1) * 4),
        columns(mode, static_cast<std::size_t>(n) * 4),
        values(mode, static_cast<std::size_t>(n) * test::width(t)) {}
  csr32_view view() const {
    return {reinterpret_cast<std::uint32_t*>(offsets.data()),
            reinterpret_cast<std::uint32_t*>(columns.data()), values.data(), type, entries};
  }
  /// Holds them to what the host makes of the same tensor, the entries after the last one left out.
  void verify(const encoding& e, const const_encoded_view& on_host) const {
    const test::buffer o(offsets.size()), c(columns.size()), v(values.size());
    const auto count = static_cast<std::size_t>(
        csr_export32({e, type, {entries}, on_host},
                     {reinterpret_cast<std::uint32_t*>(o.data()), reinterpret_cast<std::uint32_t*>(c.data()),
                      v.data(), type, entries},
                     {}));
    const auto same = [](const device_buffer& found, const test::buffer& expected, std::size_t bytes,
                         const char* what) {
      std::vector<std::uint8_t> all = found.read(), expected_bytes = bytes_of(expected);
      all.resize(bytes);
      expected_bytes.resize(bytes);
      expect_same_bytes(all, expected_bytes, what);
      found.expect_guards(what);
    };
    same(offsets, o, offsets.size(), "row offsets");
    same(columns, c, count * 4, "columns");
    same(values, v, count * test::width(type), "values");
  }

  dtype type;
  std::int64_t entries;
  device_buffer offsets, columns, values;
};

/// One tensor of tiles through every call that knows them.
class tiles_work {
 public:
  tiles_work(const pair_under_test& tested, std::int64_t n, bool canonical, bool overflows, buffer_mode mode)
      : e_(parse_encoding(tested.name)),
        canonical_(canonical),
        x_(mode, tested.type, n, {n, 0, 0}),
        y_(mode, tested.type, n, {n, 0, 0}),
        bound_(encoded_bytes_bound(e_, tested.type, n)),
        // The slot has space for a few tiles, the arena for some more.
        slot_(mode, overflows ? test::bytes_before_payloads(tested, n) + 8192 : bound_),
        out_(mode, bound_),
        report_(mode),
        out_report_(mode),
        workspace_(mode, workspace_bytes(e_, tested.type, n, context(nullptr))) {
    if (overflows) overflow_.emplace(mode, 8192, bound_);
    if (e_.kind == encoding_kind::csr) exported_.emplace(mode, tested.type, n);
  }

  void set(generator& random) {
    const tensor_view x = x_.on_host();
    x_.set(random.make(x.type, x.elements()));
  }

  void enqueue(void* stream) const {
    const execution_context c = context(stream);
    const tensor_view x = x_.on_device();
    fill(report_.data(), 0, sizeof(encode_report), stream);
    fill(out_report_.data(), 0, sizeof(encode_report), stream);
    if (overflow_) overflow_->enqueue_clear(stream);
    encode(e_, x, {slot_.data(), slot_.size(), overflow(), report_.data()},
           {workspace_.data(), workspace_.size()}, c);
    const const_encoded_view stored{slot_.data(), slot_.size(), overflow(), report_.data()};
    decode({e_, y_.on_device().type, y_.on_device().dims, stored}, y_.on_device(), {}, c);
    canonicalise({e_, x.type, {x.elements()}, stored},
                 {out_.data(), out_.size(), nullptr, out_report_.data()}, c);
    if (exported_) csr_export32({e_, exported_->view().type, {x.elements()}, stored}, exported_->view(), c);
  }

  void verify() const {
    test::buffer expected(bound_);
    encode_report report{};
    encode(e_, x_.on_host(), {expected.data(), expected.size(), nullptr, &report}, {}, {});
    const const_encoded_view on_host{expected.data(), expected.size(), nullptr, &report};
    const encode_report found = report_.read(), found_out = out_report_.read();
    expect_equal(found.status | found_out.status, status_ok, "status");
    expect_equal(found.nonzeros, report.nonzeros, "nonzeros");
    expect_equal(found_out.slot_bytes, report.slot_bytes, "slot_bytes of canonicalise");
    expect(found.overflow_bytes > 0 || report.slot_bytes <= slot_.size(), "nothing overflowed");
    const std::vector<std::uint8_t> expected_bytes(expected.data(), expected.data() + report.slot_bytes);
    const auto same = [&](const device_buffer& by_device, const char* what) {
      std::vector<std::uint8_t> bytes = by_device.read();
      bytes.resize(expected_bytes.size());
      expect_same_bytes(bytes, expected_bytes, what);
      by_device.expect_guards(what);
    };
    if (canonical_ && !overflow_) same(slot_, "bytes in canonical order");
    same(out_, "canonical bytes");
    slot_.expect_guards("slot");
    workspace_.expect_guards("workspace");
    if (overflow_) overflow_->expect_guards();
    decode({e_, y_.on_host().type, y_.on_host().dims, on_host}, y_.on_host(), {}, {});
    y_.expect_same("decoded values");
    if (exported_) exported_->verify(e_, on_host);
  }

 private:
  execution_context context(void* stream) const { return context_of(stream, canonical_); }
  const overflow_arena* overflow() const { return overflow_ ? overflow_->view() : nullptr; }

  encoding e_;
  bool canonical_;
  tensor_pair x_, y_;
  std::size_t bound_;
  device_buffer slot_, out_;
  device_report report_, out_report_;
  device_buffer workspace_;
  std::optional<overflow_memory> overflow_;
  std::optional<export_arrays> exported_;
};

/// Maps of several kinds in one call each way, those of tiles next to one arena; more of a kind than one
/// launch takes.
class batch_work {
 public:
  batch_work(bool canonical, buffer_mode mode) : canonical_(canonical), overflow_(mode, 1 << 16, 1 << 20) {
    const char* const names[] = {"bitmap", "csr_fp8", "bitmap", "raw", "bitmap", "fp10", "bitmap", "csr"};
    for (std::size_t k = 0; k < 10 * std::size(names); ++k) {
      const encoding e = parse_encoding(names[k % std::size(names)]);
      const std::int64_t n = 1 + static_cast<std::int64_t>(k) * 37 % 1700;
      parts_.push_back(std::make_unique<part>(e, n, mode));
      const part& p = *parts_.back();
      const bool tiles = e.kind == encoding_kind::bitmap || e.kind == encoding_kind::csr;
      const std::size_t bytes =
          tiles ? test::bytes_before_payloads({names[k % std::size(names)], dtype::f32}, n) : p.stored.size();
      const overflow_arena* const arena = tiles ? overflow_.view() : nullptr;
      to_encode_.push_back({e, p.x.on_device(), {p.stored.data(), bytes, arena, p.report.data()}});
      const tensor_view y = p.y.on_device();
      to_decode_.push_back({{e, y.type, y.dims, {p.stored.data(), bytes, arena, p.report.data()}}, y});
    }
    workspace_.emplace(mode, batch_workspace_bytes(to_encode_, context(nullptr)));
  }

  void set(generator& random) {
    for (const auto& p : parts_)
      p->x.set(random.make(dtype::f32, p->x.on_host().elements()));
  }

  void enqueue(void* stream) const {
    overflow_.enqueue_clear(stream);
    for (const auto& p : parts_)
      fill(p->report.data(), 0, sizeof(encode_report), stream);
    encode_batch(to_encode_, {workspace_->data(), workspace_->size()}, context(stream));
    decode_batch(to_decode_, {}, context(stream));
  }

  void verify() const {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const part& p = *parts_[i];
      const encoding& e = to_encode_[i].how;
      test::buffer stored(encoded_bytes_bound(e, dtype::f32, p.x.on_host().elements()));
      encode_report report{};
      encode(e, p.x.on_host(), {stored.data(), stored.size(), nullptr, &report}, {}, {});
      decode({e, p.y.on_host().type, p.y.on_host().dims, {stored.data(), stored.size(), nullptr, &report}},
             p.y.on_host(), {}, {});
      expect_equal(p.report.read().status, status_ok, fmt::format("status of item {}", i));
      expect_equal(p.report.read().nonzeros, report.nonzeros, fmt::format("nonzeros of item {}", i));
      p.y.expect_same(fmt::format("decoded values of item {}", i));
      p.stored.expect_guards("encoded bytes");
    }
    overflow_.expect_guards();
  }

 private:
  struct part {
    part(const encoding& e, std::int64_t n, buffer_mode mode)
        : x(mode, dtype::f32, n, {n, 0, 0}),
          y(mode, dtype::f32, n, {n, 0, 0}),
          stored(mode, encoded_bytes_bound(e, dtype::f32, n)),
          report(mode) {}
    tensor_pair x, y;
    device_buffer stored;
    device_report report;
  };

  execution_context context(void* stream) const { return context_of(stream, canonical_); }

  bool canonical_;
  overflow_memory overflow_;
  std::vector<std::unique_ptr<part>> parts_;
  std::vector<encode_item> to_encode_;
  std::vector<decode_item> to_decode_;
  std::optional<device_buffer> workspace_;
};

}  // namespace

std::vector<named_check> graph_checks(const check_setup& setup) {
  std::vector<named_check> checks;
  const buffer_mode mode = setup.mode;
  for (const char* const name : {"bitmap", "csr", "bitmap_fp8", "csr_mxfp4_e2m1"}) {
    for (const dtype type : {dtype::f32, dtype::f16}) {
      for (const bool canonical : {false, true}) {
        for (const bool overflows : {false, true}) {
          const pair_under_test tested{name, type};
          checks.push_back(repeated(fmt::format("graph_tiles{}{}/{}", canonical ? "_in_order" : "",
                                                overflows ? "_overflow" : "", name_of(tested)),
                                    1, [=](std::uint32_t seed) {
                                      tiles_work work(tested, 20011, canonical, overflows, mode);
                                      replay(work, seed + 17);
                                    }));
        }
      }
    }
  }
  for (const bool canonical : {false, true}) {
    checks.push_back(
        repeated(canonical ? "graph_batch/in_order" : "graph_batch/together", 1, [=](std::uint32_t seed) {
          batch_work work(canonical, mode);
          replay(work, seed + 19);
        }));
  }
  return checks;
}

}  // namespace stash::gpu
