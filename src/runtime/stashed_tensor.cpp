// SPDX-License-Identifier: Apache-2.0
#include "stash/stashed_tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "encoders/detail.hpp"
#include "encoders/device/backend.hpp"
#include "encoders/device/device_memory.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/message.hpp"
#include "encoders/public_call.hpp"
#include "runtime/memory/stash_access.hpp"

namespace stash {
namespace {

/// Of blocks: whole cache lines, so that no two tensors share one.
constexpr std::size_t block_alignment = runtime::stash_access::alignment;

/// Bytes to reserve for a capacity that the caller gave.
std::size_t slot_bytes(const encoding& e, dtype source, std::int64_t elements, std::size_t capacity,
                       std::size_t bound) {
  const std::size_t least = encoders::bytes_needed(e, source, elements);
  return std::max(encoders::pad16(std::min(capacity, bound)), least);
}

memory_resource& memory_of(const stash_options& options, const execution_context& context) {
  if (options.memory != nullptr) return *options.memory;
  return encoders::on_device(context) ? device_memory() : host_memory();
}

/// Memory for a tensor; errors name it.
void* allocate_for(std::string_view name, memory_resource& memory, std::size_t bytes, std::size_t alignment,
                   void* stream) {
  try {
    return memory.allocate(bytes, alignment, stream);
  } catch (const error& none) {
    if (name.empty()) throw;
    runtime::throw_named("stashed_tensor", name, "memory_resource::allocate: bytes: ", none);
  }
}

/// On a device after the work of the stream, which is waited for.
encode_report read_report(const encode_report* report, const execution_context& context) {
  if (!encoders::on_device(context)) return *report;
  encode_report copy;
  encoders::device::copy(&copy, report, sizeof copy, context.stream);
  encoders::device::wait_for_stream(context.stream);
  return copy;
}

/// The exact size of a sparse tensor on a device.
std::size_t counted_bytes(const encoding& e, const const_tensor_view& input, const stash_options& options,
                          const execution_context& context) {
  memory_resource& memory = memory_of(options, context);
  struct block {
    block(std::string_view name, memory_resource& m, void* s)
        : memory(m),
          stream(s),
          report(static_cast<encode_report*>(allocate_for(name, m, sizeof(encode_report), 64, s))) {}
    ~block() { memory.deallocate(report, sizeof(encode_report), 64, stream); }
    block(const block&) = delete;
    block& operator=(const block&) = delete;
    memory_resource& memory;
    void* stream;
    encode_report* report;
  } const counted(options.name, memory, context.stream);
  encoders::device::clear(counted.report, sizeof(encode_report), context.stream);
  encoders::device::kernels().count(e, input, counted.report, context);
  return static_cast<std::size_t>(read_report(counted.report, context).slot_bytes);
}

/// Throws what a report says went wrong.
void check_status(std::string_view function, const std::string& name, std::uint32_t status) {
  const auto fail = [&](errc code, std::string_view expected, std::string_view got) {
    encoders::fail(code, function, name.empty() ? "stored" : shortened(name), expected, got);
  };
  if ((status & status_corrupt) != 0) fail(errc::corrupt_data, "bytes that an encoder wrote", "damaged ones");
  if ((status & status_capacity) != 0) {
    fail(errc::capacity_exceeded, "capacity for the whole tensor", "a slot that was too small");
  }
  if ((status & status_verification) != 0) {
    fail(errc::verification_failed, "the tensor that was encoded", "a different one");
  }
}

}  // namespace

void runtime::throw_named(std::string_view function, std::string_view name, std::string_view inner,
                          const error& e) {
  std::string_view text = e.what();
  if (text.starts_with(inner)) text.remove_prefix(inner.size());
  throw error(e.code(), fmt::format("{}: {}: {}", function, shortened(name), text));
}

void runtime::check_restore(std::string_view function, std::string_view name, const encoded_tensor& stored,
                            const tensor_view& output, const execution_context& context) {
  const encoding_kind kind = stored.how.kind;
  const bool mask = kind == encoding_kind::sign_mask || kind == encoding_kind::range_mask;
  try {
    encoders::check_view(function, "output", output, mask ? output.type : stored.type, context.space);
    encoders::check_elements(function, "output", output, stored.elements());
    encoders::check_decode(function, {stored, output}, context);
  } catch (const error& wrong) {
    if (name.empty()) throw;
    throw_named(function, name, fmt::format("{}: ", function), wrong);
  }
}

stashed_tensor::stashed_tensor(const encoding& e, dtype source, const shape& dims, std::size_t bytes,
                               const stash_options& options, const execution_context& context)
    : how_(e),
      type_(source),
      dims_(dims),
      name_(options.name),
      stream_(context.stream),
      encoded_bytes_(bytes) {
  const bool device = encoders::on_device(context);
  memory_resource& memory = memory_of(options, context);
  const memory_space space = memory.space();
  if (!encoders::is_known(space)) {
    encoders::fail(errc::invalid_argument, "stashed_tensor", "options.memory",
                   "memory of the host or of a device",
                   fmt::format("memory space {}", static_cast<unsigned>(space)));
  }
  if (device != (space == memory_space::device)) {
    encoders::fail(errc::invalid_argument, "stashed_tensor", "options.memory",
                   "memory of the context's space", device ? "host memory" : "device memory");
  }
  block_ = static_cast<unsigned char*>(allocate_for(name_, memory, block_bytes(), block_alignment, stream_));
  memory_ = &memory;
  if (device) {
    try {
      encoders::device::clear(block_ + encoded_bytes_, sizeof(encode_report), stream_);
    } catch (...) {
      reset();
      throw;
    }
  } else {
    new (block_ + encoded_bytes_) encode_report;
  }
}

stashed_tensor::stashed_tensor(const encoding& e, const const_tensor_view& input,
                               const stash_options& options, const execution_context& context) try
    : stashed_tensor() {
  constexpr std::string_view function = "stashed_tensor";
  encoders::check_encode_input(function, e, input, context);
  execution_context unordered = context;
  unordered.canonical = false;  // needs workspace, and nobody looks at these bytes
  const std::int64_t elements = input.elements();
  const std::size_t bound = encoders::bytes_bound(e, input.type, elements);
  const auto encode_into = [&](std::size_t bytes) {
    *this = stashed_tensor(e, input.type, input.dims, bytes, options, context);
    encoders::run_encode({e, input, output()}, {}, unordered);
    return bytes >= bound || (read_report(report(), context).status & status_capacity) == 0;
  };
  if (!encoders::is_tiled(e.kind)) {
    encode_into(bound);
    return;
  }
  const auto count = [&] {
    return encoders::on_device(context) ? counted_bytes(e, input, options, context)
                                        : encoded_bytes_exact(e, input, context);
  };
  std::size_t slot = 0;
  if (options.capacity != 0) {
    slot = slot_bytes(e, input.type, elements, options.capacity, bound);
    if (encode_into(slot)) return;
  }
  const std::size_t exact = count();
  if (options.capacity != 0) {
    options.events({event_kind::overflow, name_, exact, slot, -1});
    // Before the larger block is asked for: it may need this one's memory.
    reset();
  }
  if (!encode_into(exact)) {
    reset();
    encoders::fail(errc::invalid_argument, function, "input", "values that stay as they are during the call",
                   "more non-zeros than were counted");
  }
  if (options.capacity != 0) options.events({event_kind::fallback, name_, exact, exact, -1});
} catch (...) {
  encoders::rethrow("stashed_tensor");
}

stashed_tensor stashed_tensor::reserve(const encoding& e, dtype source, const shape& dims,
                                       const stash_options& options, const execution_context& context) try {
  constexpr std::string_view function = "stashed_tensor::reserve";
  encoders::check_context(function, context);
  const std::size_t bound = encoders::checked_bytes_bound(function, "source", e, source, dims.elements());
  const bool sized = encoders::is_tiled(e.kind) && options.capacity != 0;
  const std::size_t bytes = sized ? slot_bytes(e, source, dims.elements(), options.capacity, bound) : bound;
  return {e, source, dims, bytes, options, context};
} catch (...) {
  encoders::rethrow("stashed_tensor::reserve");
}

stashed_tensor::stashed_tensor(stashed_tensor&& other) noexcept
    : how_(other.how_),
      type_(other.type_),
      dims_(other.dims_),
      name_(std::move(other.name_)),
      memory_(std::exchange(other.memory_, nullptr)),
      stream_(other.stream_),
      block_(std::exchange(other.block_, nullptr)),
      encoded_bytes_(std::exchange(other.encoded_bytes_, 0)) {}

stashed_tensor& stashed_tensor::operator=(stashed_tensor&& other) noexcept {
  if (this == &other) return *this;
  reset();
  how_ = other.how_;
  type_ = other.type_;
  dims_ = other.dims_;
  name_ = std::move(other.name_);
  memory_ = std::exchange(other.memory_, nullptr);
  stream_ = other.stream_;
  block_ = std::exchange(other.block_, nullptr);
  encoded_bytes_ = std::exchange(other.encoded_bytes_, 0);
  return *this;
}

stashed_tensor::~stashed_tensor() {
  reset();
}

void stashed_tensor::reset() noexcept {
  if (empty()) return;
  std::exchange(memory_, nullptr)
      ->deallocate(std::exchange(block_, nullptr), block_bytes(), block_alignment, stream_);
  encoded_bytes_ = 0;
}

void stashed_tensor::restore(const tensor_view& output, const execution_context& context) const try {
  constexpr std::string_view function = "stashed_tensor::restore";
  if (empty())
    encoders::fail(errc::invalid_argument, function, "this", "a stashed tensor", "an empty handle");
  encoded_tensor input = stored();
  runtime::check_restore(function, name_, input, output, context);
  if (encoders::on_device(context)) return encoders::run_decode({input, output}, context);
  // Of its own, so that restores at the same time do not see each other's status.
  encode_report own = *report();
  input.bytes.report = &own;
  encoders::run_decode({input, output}, context);
  check_status(function, name_, own.status);
} catch (...) {
  encoders::rethrow("stashed_tensor::restore");
}

void stashed_tensor::check(const execution_context& context) const try {
  constexpr std::string_view function = "stashed_tensor::check";
  encoders::check_context(function, context);
  if (!empty()) check_status(function, name_, read_report(report(), context).status);
} catch (...) {
  encoders::rethrow("stashed_tensor::check");
}

void stashed_tensor::rewind(const execution_context& context) try {
  constexpr std::string_view function = "stashed_tensor::rewind";
  encoders::check_context(function, context);
  if (empty())
    encoders::fail(errc::invalid_argument, function, "this", "a stashed tensor", "an empty handle");
  const bool device = encoders::on_device(context);
  if (device != (memory_->space() == memory_space::device)) {
    encoders::fail(errc::invalid_argument, function, "context", "one of the handle's memory",
                   device ? "one of a device" : "one of the host");
  }
  if (device) {
    encoders::device::clear(report(), sizeof(encode_report), context.stream);
  } else {
    *report() = {};
  }
} catch (...) {
  encoders::rethrow("stashed_tensor::rewind");
}

std::size_t stashed_tensor::dense_bytes() const noexcept {
  return empty() ? 0 : static_cast<std::size_t>(dims_.elements()) * size_of(type_);
}

size_query stashed_tensor::size(const execution_context& context) const try {
  if (empty()) {
    encoders::fail(errc::invalid_argument, "stashed_tensor::size", "this", "a stashed tensor",
                   "an empty handle");
  }
  return {stored(), context};
} catch (...) {
  encoders::rethrow("stashed_tensor::size");
}

encoded_view stashed_tensor::output() noexcept {
  if (empty()) return {};
  return {block_, encoded_bytes_, nullptr, report()};
}

encoded_tensor stashed_tensor::stored() const noexcept {
  if (empty()) return {how_, type_, dims_, {}};
  return {how_, type_, dims_, {block_, encoded_bytes_, nullptr, report()}};
}

std::size_t stashed_tensor::block_bytes() const noexcept {
  return encoded_bytes_ + sizeof(encode_report);
}

encode_report* stashed_tensor::report() const noexcept {
  return std::launder(reinterpret_cast<encode_report*>(block_ + encoded_bytes_));
}

}  // namespace stash
