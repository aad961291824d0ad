// SPDX-License-Identifier: Apache-2.0
#include "modelled_device.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <vector>

#include "encoders/device/device.hpp"
#include "encoders/device/device_memory.hpp"

namespace stash {
namespace {

/// Per stream, up to when its work is known to have ended.
using order = std::map<void*, double>;

struct stream_state {
  double end = 0.0;
  order after;
};

struct recorded {
  void* stream;
  double end;
  order after;
};

struct free_block {
  std::size_t bytes;
  void* stream;
  double end;
};

struct whole_device {
  std::map<void*, stream_state> streams;
  std::vector<free_block> free;
  std::map<void*, std::size_t> blocks;
  std::size_t pool = 0;
  std::uintptr_t next_stream = 16, next_block = std::uintptr_t{1} << 40;
  modelled_device::pool_rule rule = modelled_device::pool_rule::ordered;
  double synchronised = -1.0;
  double host = 0.0;  ///< what ended before this the host has waited for
};

whole_device d;

bool usable(const free_block& f, void* stream) {
  if (f.stream == stream || f.end <= d.synchronised) return true;
  if (d.rule == modelled_device::pool_rule::same_stream) return false;
  if (f.end <= d.host) return true;
  const order& known = d.streams[stream].after;
  const auto at = known.find(f.stream);
  return at != known.end() && at->second >= f.end;
}

void order_after(order& known, void* stream, double end) {
  double& latest = known[stream];
  latest = std::max(latest, end);
}

}  // namespace

namespace modelled_device {

void reset(pool_rule rule) {
  d = {};
  d.rule = rule;
}

void synchronise() {
  host_waits();
  d.synchronised = d.host;
}

void host_waits() {
  for (const auto& [stream, state] : d.streams)
    d.host = std::max(d.host, state.end);
}

void* make_stream() {
  return reinterpret_cast<void*>(d.next_stream++);
}

void work(void* stream, double ms) {
  d.streams[stream].end += ms;
}

double end_of(void* stream) {
  return d.streams[stream].end;
}

std::size_t pool_bytes() {
  return d.pool;
}

}  // namespace modelled_device

namespace encoders::device {
namespace {

class modelled_memory final : public memory_calls {
 public:
  void check_available(std::string_view) const override {}

  void* allocate(std::size_t bytes, void* stream) const override {
    const auto found = std::find_if(d.free.begin(), d.free.end(), [&](const free_block& f) {
      return f.bytes == bytes && usable(f, stream);
    });
    if (found != d.free.end()) {
      d.free.erase(found);
    } else {
      d.pool += bytes;
    }
    d.next_block += (bytes + 511) / 256 * 256;
    void* const block = reinterpret_cast<void*>(d.next_block);
    d.blocks[block] = bytes;
    return block;
  }

  void deallocate(void* data, void* stream) const noexcept override {
    d.free.push_back({d.blocks[data], stream, d.streams[stream].end});
    d.blocks.erase(data);
  }

  // Never read or written.
  void* allocate_pinned(std::size_t) const override { return std::aligned_alloc(256, 256); }

  void deallocate_pinned(void* data) const noexcept override { std::free(data); }

  void clear(void*, std::size_t, void*) const override {}

  void copy(void*, const void*, std::size_t bytes, void* stream) const override {
    modelled_device::work(stream, static_cast<double>(bytes) / modelled_device::link_bytes_per_ms);
  }

  void wait_for_stream(void* stream) const override { d.host = std::max(d.host, d.streams[stream].end); }

  void* create_stream() const override { return modelled_device::make_stream(); }

  void destroy_stream(void*) const noexcept override {}

  event record_event(void* stream) const override {
    const stream_state& s = d.streams[stream];
    return new recorded{stream, s.end, s.after};
  }

  bool reached(event e) const override { return static_cast<recorded*>(e)->end <= d.host; }

  void wait_for_event(event e) const override { d.host = std::max(d.host, static_cast<recorded*>(e)->end); }

  void wait_in_stream(void* stream, event e) const override {
    const recorded& r = *static_cast<recorded*>(e);
    stream_state& s = d.streams[stream];
    s.end = std::max(s.end, r.end);
    order_after(s.after, r.stream, r.end);
    for (const auto& [other, end] : r.after)
      order_after(s.after, other, end);
  }

  void destroy_event(event e) const noexcept override { delete static_cast<recorded*>(e); }
};

// Encodings are copies, which take no time.
class no_kernels final : public kernel_calls {
 public:
  void count(const encoding&, const const_tensor_view&, encode_report*,
             const execution_context&) const override {}
  void encode(const encode_item&, const workspace_view&, const execution_context&) const override {}
  void decode(const decode_item&, const execution_context&) const override {}
  void encode_batch(std::span<const encode_item>, const workspace_view&,
                    const execution_context&) const override {}
  void decode_batch(std::span<const decode_item>, const execution_context&) const override {}
  void canonicalise(const encoded_tensor&, const encoded_view&, const execution_context&) const override {}
  void copy_encoded(const void*, void*, std::size_t, encode_report*,
                    const execution_context&) const override {}
  void csr_export32(const encoded_tensor&, const csr32_view&, const execution_context&) const override {}
  void relu_forward(const const_tensor_view&, const tensor_view&, const encoded_view&, framework_rule,
                    const execution_context&) const override {}
  void relu_backward(const const_tensor_view&, const encoded_tensor&, const tensor_view&, framework_rule,
                     const execution_context&) const override {}
  void relu_backward(const const_tensor_view&, const const_tensor_view&, const tensor_view&, framework_rule,
                     const execution_context&) const override {}
  void leaky_relu_forward(const const_tensor_view&, const tensor_view&, const encoded_view&, float,
                          const execution_context&) const override {}
  void leaky_relu_backward(const const_tensor_view&, const encoded_tensor&, const tensor_view&, float,
                           const execution_context&) const override {}
  void leaky_relu_backward(const const_tensor_view&, const const_tensor_view&, const tensor_view&, float,
                           const execution_context&) const override {}
  void clip_forward(const const_tensor_view&, const tensor_view&, const encoded_view&, float, float,
                    framework_rule, const execution_context&) const override {}
  void clip_backward(const const_tensor_view&, const encoded_tensor&, const tensor_view&, float, float,
                     framework_rule, const execution_context&) const override {}
  void clip_backward(const const_tensor_view&, const const_tensor_view&, const tensor_view&, float, float,
                     framework_rule, const execution_context&) const override {}
  void dropout_forward(const const_tensor_view&, const tensor_view&, const encoded_view&,
                       const dropout_constants&, const dropout_key&,
                       const execution_context&) const override {}
  void dropout_backward(const const_tensor_view&, const encoded_tensor&, const tensor_view&,
                        const dropout_constants&, const execution_context&) const override {}
  void dropout_backward(const const_tensor_view&, const tensor_view&, const dropout_constants&,
                        const dropout_key&, const execution_context&) const override {}
  void max_pool_forward(const const_tensor_view&, const tensor_view&, const pool_window&, const encoded_view&,
                        framework_rule, const execution_context&) const override {}
  void max_pool_backward(const const_tensor_view&, const encoded_tensor&, const tensor_view&,
                         const pool_window&, const execution_context&) const override {}
  void max_pool_backward(const const_tensor_view&, const const_tensor_view&, const tensor_view&,
                         const pool_window&, framework_rule, const execution_context&) const override {}
  void relu_max_pool_forward(const const_tensor_view&, const tensor_view&, const pool_window&,
                             const encoded_view&, const encoded_view&, framework_rule,
                             const execution_context&) const override {}
  void relu_max_pool_backward(const const_tensor_view&, const encoded_tensor&, const tensor_view&,
                              const pool_window&, const execution_context&) const override {}
  void relu_max_pool_backward(const const_tensor_view&, const encoded_tensor&, const encoded_tensor&,
                              const tensor_view&, const pool_window&, framework_rule,
                              const execution_context&) const override {}
  void relu_max_pool_backward(const const_tensor_view&, const encoded_tensor&, const const_tensor_view&,
                              const tensor_view&, const pool_window&, framework_rule,
                              const execution_context&) const override {}
  void relu_max_pool_backward(const const_tensor_view&, const const_tensor_view&, const tensor_view&,
                              const pool_window&, framework_rule, const execution_context&) const override {}
  void encode_window_index(const std::int64_t*, const shape&, const shape&, const pool_window&,
                           const encoded_view&, const execution_context&) const override {}
  void decode_window_index(const encoded_tensor&, const shape&, const pool_window&, std::int64_t*,
                           const execution_context&) const override {}
};

const modelled_memory memory_of_model;
const no_kernels kernels_of_model;
const backend model{&memory_of_model, &kernels_of_model};
[[maybe_unused]] const bool registered = (register_backend(&model), true);

}  // namespace
}  // namespace encoders::device
}  // namespace stash
