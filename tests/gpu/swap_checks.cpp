// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "gpu/checks.hpp"
#include "runtime/swap/swap_device.hpp"
#include "stash/memory.hpp"

namespace stash::gpu {
namespace {

using runtime::device_swap_engine;
using runtime::swap_lane;
using runtime::swap_program;
using runtime::swap_side;
using test::generator;

/// A step in miniature: `maps` maps are encoded one after the other into two slots that take turns, go to the
/// host, come back last one first, and are decoded. Only the edges keep a slot from being written too early.
class swapped_step {
 public:
  swapped_step(const encoding& e, std::size_t maps, std::int64_t n, std::size_t delay, buffer_mode mode)
      : e_(e),
        slot_(encoded_bytes_bound(e, dtype::f32, n)),
        device_(device_memory(), slots * slot_),
        host_(pinned_memory(), maps * slot_),
        delay_from_(device_memory(), delay),
        delay_to_(device_memory(), delay),
        delay_(delay) {
    generator random(21);
    for (std::size_t k = 0; k < maps; ++k) {
      x_.push_back(std::make_unique<tensor_pair>(mode, random.make(dtype::f32, n), placement{n, 0, 0}));
      y_.push_back(std::make_unique<tensor_pair>(mode, dtype::f32, n, placement{n, 0, 0}));
      reports_.push_back(std::make_unique<device_report>(mode));
    }
    engine_ =
        std::make_unique<device_swap_engine>(program(), runtime::swap_memory{device_.data(), host_.data()},
                                             runtime::device_swap_settings{.chunk_bytes = 64 << 10});
  }

  void set(generator& random) {
    for (const auto& x : x_)
      x->set(random.make(dtype::f32, x->on_host().dims[0]));
  }

  void enqueue(void* stream) {
    engine_->enqueue(stream, [&](std::int32_t task) { compute(static_cast<std::size_t>(task), stream); });
  }

  void verify() const {
    for (std::size_t k = 0; k < x_.size(); ++k) {
      expect_equal(reports_[k]->read().status, status_ok, "status");
      y_[k]->copy_host_from(*x_[k]);
      y_[k]->expect_same("map " + std::to_string(k) + " back from the host");
    }
  }

 private:
  static constexpr std::size_t slots = 2;

  swap_program program() {
    swap_program p;
    const auto bytes = static_cast<std::int64_t>(slot_);
    const auto maps = static_cast<std::int32_t>(x_.size());
    for (std::int32_t k = 0; k < 2 * maps; ++k) {
      p.blocks.push_back({swap_side::device, k % static_cast<std::int32_t>(slots) * bytes, bytes});
      if (k < maps) p.blocks.push_back({swap_side::host, k * bytes, bytes});
    }
    // Blocks 2k and 2k + 1 are map k before it goes and on the host, those after them are maps that came
    // back.
    const auto add = [&](swap_lane lane, std::vector<runtime::swap_access> accesses, std::int32_t map) {
      p.tasks.push_back({lane, std::move(accesses), lane == swap_lane::compute ? 0 : bytes, nullptr,
                         "map " + std::to_string(map)});
      map_of_.push_back(static_cast<std::size_t>(map));
    };
    for (std::int32_t k = 0; k < maps; ++k) {
      add(swap_lane::compute, {{2 * k, true}}, k);
      add(swap_lane::out, {{2 * k, false}, {2 * k + 1, true}}, k);
    }
    decoding_from_ = p.tasks.size();
    for (std::int32_t k = maps; k-- > 0;) {
      const std::int32_t back = 2 * maps + (maps - 1 - k);
      add(swap_lane::in, {{2 * k + 1, false}, {back, true}}, k);
      add(swap_lane::compute, {{back, false}}, k);
    }
    p.edges = order_edges(p);
    return p;
  }

  void compute(std::size_t task, void* stream) const {
    const execution_context context = device_context(stream);
    const std::size_t k = map_of_[task];
    const runtime::swap_task& t = engine_->program().tasks[task];
    const runtime::swap_block& b = engine_->program().blocks[static_cast<std::size_t>(t.accesses[0].block)];
    std::byte* const slot = device_.data() + b.offset;
    // Something long in front: a copy that does not wait would be far ahead.
    if (delay_ > 0) copy_on_device(delay_to_.data(), delay_from_.data(), delay_, stream);
    if (task < decoding_from_) {
      fill(reports_[k]->data(), 0, sizeof(encode_report), stream);
      encode(e_, x_[k]->on_device(), {slot, slot_, nullptr, reports_[k]->data()}, {}, context);
    } else {
      decode(
          {e_, y_[k]->on_device().type, y_[k]->on_device().dims, {slot, slot_, nullptr, reports_[k]->data()}},
          y_[k]->on_device(), {}, context);
    }
  }

  encoding e_;
  std::size_t slot_;
  resource_block device_, host_, delay_from_, delay_to_;
  std::size_t delay_;
  std::vector<std::unique_ptr<tensor_pair>> x_, y_;
  std::vector<std::unique_ptr<device_report>> reports_;
  std::vector<std::size_t> map_of_;
  std::size_t decoding_from_ = 0;
  std::unique_ptr<device_swap_engine> engine_;
};

struct sizes {
  std::int64_t elements = is_emulated() ? 3001 : 3'000'001;
  std::size_t delay = is_emulated() ? 256 : std::size_t{256} << 20;
};

void in_streams(const char* name, buffer_mode mode) {
  swapped_step step(parse_encoding(name), 7, sizes{}.elements, sizes{}.delay, mode);
  generator random(22);
  const stream in;
  for (int round = 0; round < 3; ++round) {
    step.set(random);
    wait_for_device();
    step.enqueue(in.handle());
    in.wait();
    step.verify();
  }
}

/// The whole step, both streams of copies included, as one graph.
void recorded(const char* name, buffer_mode mode) {
  swapped_step step(parse_encoding(name), 5, sizes{}.elements, sizes{}.delay, mode);
  generator random(23);
  const stream in;
  graph whole(in, [&] { step.enqueue(in.handle()); });
  for (int round = 0; round < 3; ++round) {
    step.set(random);
    wait_for_device();
    whole.launch();
    in.wait();
    step.verify();
  }
}

}  // namespace

std::vector<named_check> swap_checks(const check_setup& setup) {
  std::vector<named_check> checks;
  const buffer_mode mode = setup.mode;
  for (const char* const name : {"raw", "bitmap", "csr"}) {
    checks.push_back(
        repeated(std::string("swap/streams_") + name, 1, [=](std::uint32_t) { in_streams(name, mode); }));
    checks.push_back(
        repeated(std::string("swap/graph_") + name, 1, [=](std::uint32_t) { recorded(name, mode); }));
  }
  return checks;
}

}  // namespace stash::gpu
