// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "gpu/checks.hpp"
#include "stash/batch.hpp"
#include "stash/relu.hpp"

namespace stash::gpu {
namespace {

using test::generator;

/// Everything that encoding, decoding and the gradient of one map needs, so that nothing is allocated between
/// the calls.
class round_trip {
 public:
  round_trip(const encoding& e, dtype type, std::int64_t n, buffer_mode mode)
      : e_(e),
        type_(type),
        n_(n),
        x_(mode, type, n, {n, 0, 0}),
        y_(mode, type, n, {n, 0, 0}),
        dx_(mode, type, n, {n, 0, 0}),
        stored_(mode, encoded_bytes_bound(e, type, n)),
        report_(mode) {}

  void set(const test::tensor& t) { x_.set(t); }

  void enqueue(void* stream) const {
    const execution_context context = device_context(stream);
    fill(report_.data(), 0, sizeof(encode_report), stream);
    encode(e_, x_.on_device(), {stored_.data(), stored_.size(), nullptr, report_.data()}, {}, context);
    const const_encoded_view stash{stored_.data(), stored_.size(), nullptr, report_.data()};
    decode({e_, y_.on_device().type, y_.on_device().dims, stash}, y_.on_device(), {}, context);
    relu_backward(x_.on_device(), {e_, x_.on_device().type, x_.on_device().dims, stash}, dx_.on_device(),
                  framework_rule::pytorch, context);
  }

  /// The same on the host, and what the device made of it.
  void verify() const {
    test::buffer stored(stored_.size());
    encode_report report{};
    encode(e_, x_.on_host(), {stored.data(), stored.size(), nullptr, &report}, {}, {});
    const const_encoded_view stash{stored.data(), stored.size(), nullptr, &report};
    decode({e_, y_.on_host().type, y_.on_host().dims, stash}, y_.on_host(), {}, {});
    relu_backward(x_.on_host(), {e_, x_.on_host().type, x_.on_host().dims, stash}, dx_.on_host(),
                  framework_rule::pytorch, {});
    const encode_report found = report_.read();
    expect_equal(found.status, report.status, "status");
    expect_equal(found.nonzeros, report.nonzeros, "nonzeros");
    expect_equal(found.slot_bytes, report.slot_bytes, "slot_bytes");
    x_.expect_same("x");
    y_.expect_same("decoded values");
    dx_.expect_same("dx");
    stored_.expect_guards("encoded bytes");
  }

  dtype type() const { return type_; }
  std::int64_t elements() const { return n_; }

 private:
  encoding e_;
  dtype type_;
  std::int64_t n_;
  tensor_pair x_, y_, dx_;
  device_buffer stored_;
  device_report report_;
};

const char* const stashes[] = {"raw", "bitmap", "csr", "bitmap_fp8", "csr_mxfp4_e2m1", "fp8", "mxfp6_e2m3"};

encoding stash_named(const char* name) {
  encoding e = parse_encoding(name);
  e.underflow = underflow_rule::keep_nonzero;
  return e;
}

/// Recorded once, launched on several inputs: the calls neither wait nor allocate nor look at the data.
void replay(const char* name, dtype type, buffer_mode mode) {
  generator random(11);
  round_trip work(stash_named(name), type, 20011, mode);
  const stream in;
  graph recorded(in, [&] { work.enqueue(in.handle()); });
  for (int k = 0; k < 3; ++k) {
    work.set(random.make(type, work.elements()));
    recorded.launch();
    in.wait();
    work.verify();
  }
}

/// Calls that no graph can repeat are refused while one is recorded, and nothing of it stays.
void refuses(buffer_mode mode) {
  const device_buffer x(mode, 64);
  const stream in;
  const auto refused = [&](const char* what, const std::function<void()>& call) {
    try {
      graph recorded(in, [&] {
        fill(x.data(), 1, x.size(), in.handle());
        call();
      });
    } catch (const failure&) {
      return;
    }
    throw check_failed(std::string(what) + " was recorded");
  };
  std::uint8_t byte = 0;
  refused("waiting for the stream", [&] { in.wait(); });
  refused("waiting for the device", [] { wait_for_device(); });
  refused("memory", [] { const memory taken(64); });
  refused("a copy to the host", [&] { download(&byte, x.data(), 1); });
  graph recorded(in, [&] { fill(x.data(), 2, x.size(), in.handle()); });
  expect(x.read() == std::vector<std::uint8_t>(x.size(), 0xa5), "something happened while it was recorded");
  recorded.launch();
  in.wait();
  expect(x.read() == std::vector<std::uint8_t>(x.size(), 2), "the recorded work did not happen");
}

/// Eight streams with work of different sizes, several rounds without waiting in between.
void concurrent(buffer_mode mode) {
  generator random(12);
  std::vector<std::unique_ptr<round_trip>> works;
  std::vector<stream> streams(8);
  for (std::size_t k = 0; k < 3 * streams.size(); ++k) {
    const dtype type = k % 3 == 0 ? dtype::f32 : k % 3 == 1 ? dtype::f16 : dtype::bf16;
    works.push_back(std::make_unique<round_trip>(stash_named(stashes[k % std::size(stashes)]), type,
                                                 5000 + static_cast<std::int64_t>(k) * 1777, mode));
    works.back()->set(random.make(type, works.back()->elements()));
  }
  wait_for_device();
  for (int round = 0; round < 4; ++round) {
    for (std::size_t k = 0; k < works.size(); ++k)
      works[k]->enqueue(streams[k % streams.size()].handle());
  }
  for (const stream& s : streams)
    s.wait();
  for (const auto& work : works)
    work->verify();
}

/// Streams that share one overflow arena: who gets which part of it is open, what is decoded is not.
void shared_arena(buffer_mode mode) {
  generator random(13);
  const encoding e = parse_encoding("bitmap");
  constexpr std::size_t count = 6;
  constexpr std::int64_t n = 30000;
  const std::size_t fixed = test::bytes_before_payloads({"bitmap", dtype::f32}, n);
  const device_buffer arena_memory(mode, count * encoded_bytes_bound(e, dtype::f32, n));
  const device_buffer claimed(mode, std::vector<std::uint8_t>(8, 0));
  const overflow_arena arena{arena_memory.data(), arena_memory.size(),
                             reinterpret_cast<std::uint64_t*>(claimed.data())};
  struct item {
    item(const test::tensor& t, std::size_t slot_bytes, buffer_mode m)
        : x(m, t, {n, 0, 0}), y(m, dtype::f32, n, {n, 0, 0}), slot(m, slot_bytes), report(m) {}
    tensor_pair x, y;
    device_buffer slot;
    device_report report;
    stream in;
  };
  std::vector<std::unique_ptr<item>> items;
  for (std::size_t k = 0; k < count; ++k)
    items.push_back(std::make_unique<item>(random.make(dtype::f32, n), fixed + 4096 * k, mode));
  wait_for_device();
  for (const auto& i : items) {
    const execution_context context = device_context(i->in.handle());
    encode(e, i->x.on_device(), {i->slot.data(), i->slot.size(), &arena, i->report.data()}, {}, context);
    decode({e,
            i->y.on_device().type,
            i->y.on_device().dims,
            {i->slot.data(), i->slot.size(), &arena, i->report.data()}},
           i->y.on_device(), {}, context);
  }
  wait_for_device();
  std::uint64_t overflow = 0;
  for (const auto& i : items) {
    const encode_report report = i->report.read();
    expect_equal(report.status, status_ok, "status");
    overflow += report.overflow_bytes;
    i->y.copy_host_from(i->x);
    i->y.expect_same("decoded values");
    i->slot.expect_guards("slot");
  }
  std::uint64_t total = 0;
  download(&total, claimed.data(), sizeof total);
  expect_equal(total, overflow, "bytes claimed of the arena");
  arena_memory.expect_guards("arena");
}

void batch(buffer_mode mode) {
  generator random(14);
  const stream in;
  struct part {
    part(const encoding& e, const test::tensor& t, buffer_mode m)
        : x(m, t, {std::max<std::int64_t>(1, t.count()), 0, 0}),
          y(m, t.type, t.count(), {std::max<std::int64_t>(1, t.count()), 0, 0}),
          stored(m, encoded_bytes_bound(e, t.type, t.count())),
          report(m) {}
    tensor_pair x, y;
    device_buffer stored;
    device_report report;
  };
  std::vector<std::unique_ptr<part>> parts;
  std::vector<encode_item> to_encode;
  std::vector<decode_item> to_decode;
  for (std::size_t k = 0; k < 24; ++k) {
    const encoding e = parse_encoding(k % 2 == 0 ? "bitmap" : "csr");
    parts.push_back(std::make_unique<part>(e, random.make(dtype::f32, random.size()), mode));
    const part& p = *parts.back();
    to_encode.push_back({e, p.x.on_device(), {p.stored.data(), p.stored.size(), nullptr, p.report.data()}});
    const tensor_view y = p.y.on_device();
    to_decode.push_back(
        {{e, y.type, y.dims, {p.stored.data(), p.stored.size(), nullptr, p.report.data()}}, y});
  }
  wait_for_device();
  encode_batch(to_encode, {}, device_context(in.handle()));
  decode_batch(to_decode, {}, device_context(in.handle()));
  in.wait();
  for (const auto& p : parts) {
    expect_equal(p->report.read().status, status_ok, "status");
    p->y.copy_host_from(p->x);
    p->y.expect_same("decoded values");
  }
}

}  // namespace

std::vector<named_check> stream_checks(const check_setup& setup) {
  std::vector<named_check> checks;
  const buffer_mode mode = setup.mode;
  for (const char* const name : stashes) {
    for (const dtype type : {dtype::f32, dtype::f16}) {
      checks.push_back(
          repeated(fmt::format("graph_replay/{}_of_{}", name, type == dtype::f32 ? "f32" : "f16"), 1,
                   [=](std::uint32_t) { replay(name, type, mode); }));
    }
  }
  checks.push_back(repeated("graph/refuses_what_it_cannot_repeat", 1, [=](std::uint32_t) { refuses(mode); }));
  checks.push_back(repeated("streams/independent", 1, [=](std::uint32_t) { concurrent(mode); }));
  checks.push_back(repeated("streams/shared_arena", 1, [=](std::uint32_t) { shared_arena(mode); }));
  checks.push_back(repeated("batch/bitmap_and_csr", 1, [=](std::uint32_t) { batch(mode); }));
  return checks;
}

}  // namespace stash::gpu
