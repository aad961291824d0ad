// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What every encoder shares: argument checks, the parallel loop, and dense access to pitched views.
/// Internal to the encoders module.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "encoders/public_call.hpp"
#include "stash/encoding.hpp"
#include "stash/error.hpp"

namespace stash::encoders {

// Planes, tables and payloads are little-endian (docs/format.md) and are accessed here as native integers.
static_assert(std::endian::native == std::endian::little);

/// Larger counts are refused so that no size computed from a count can overflow.
inline constexpr std::int64_t max_elements = std::int64_t{1} << 56;

constexpr std::size_t pad16(std::size_t bytes) noexcept {
  return (bytes + 15) / 16 * 16;
}

/// Bytes of a plane of `count` codes of `bits` bits (1, 2, 4 or 8) each, padded to 16.
constexpr std::size_t plane_bytes(std::int64_t count, int bits) noexcept {
  const auto per_byte = static_cast<std::size_t>(8 / bits);
  return pad16((static_cast<std::size_t>(count) + per_byte - 1) / per_byte);
}

constexpr std::int64_t tile_count(std::int64_t elements) noexcept {
  return (elements + tile_elements - 1) / tile_elements;
}

// --- argument checks -------------------------------------------------------------------------------------

/// Throws error(code) with the message "function: argument: expected ..., got ...".
[[noreturn]] void fail(errc code, std::string_view function, std::string_view argument,
                       std::string_view expected, std::string_view got);

/// "f32", "f16", ...
std::string_view type_name(dtype type) noexcept;

bool is_known(memory_space space) noexcept;

/// The context must be one of the host, or of a device if this build has a back end for it.
void check_context(std::string_view function, const execution_context& context);

constexpr bool on_device(const execution_context& context) noexcept {
  return context.space == memory_space::device;
}

/// `view` must have type `type`, lie in a known memory space that a call in `where` can reach, be aligned to
/// its elements, and have a pitch of at least its inner length; its data may be null only if it has no
/// elements. Returns their count, so that nobody counts again.
std::int64_t check_view(std::string_view function, std::string_view argument, const const_tensor_view& view,
                        dtype type, memory_space where = memory_space::host);
// A view that is copied to be checked waits for the caller's stores, a tenth of a call on a small map: those
// of both kinds are checked where they are.
std::int64_t check_view(std::string_view function, std::string_view argument, const tensor_view& view,
                        dtype type, memory_space where = memory_space::host);

/// The same for any floating-point type.
std::int64_t check_float_view(std::string_view function, std::string_view argument,
                              const const_tensor_view& view, memory_space where = memory_space::host);
std::int64_t check_float_view(std::string_view function, std::string_view argument, const tensor_view& view,
                              memory_space where = memory_space::host);

/// `view` must have `elements` elements.
void check_elements(std::string_view function, std::string_view argument, const const_tensor_view& view,
                    std::int64_t elements);

/// Two tensors of one floating-point type and as many elements, which are returned.
std::int64_t check_float_pair(std::string_view function, std::string_view first_name,
                              const const_tensor_view& first, std::string_view second_name,
                              const const_tensor_view& second, memory_space where = memory_space::host);
std::int64_t check_float_pair(std::string_view function, std::string_view first_name,
                              const const_tensor_view& first, std::string_view second_name,
                              const tensor_view& second, memory_space where = memory_space::host);

/// Encoded bytes: a report, 16-byte aligned data (may be null if `needed` is 0) and at least `needed` bytes
/// (else capacity_exceeded).
void check_encoded(std::string_view function, std::string_view argument, const void* data, std::size_t bytes,
                   const encode_report* report, std::size_t needed);
inline void check_encoded(std::string_view function, std::string_view argument, const encoded_view& view,
                          std::size_t needed) {
  check_encoded(function, argument, view.data, view.bytes, view.report, needed);
}
inline void check_encoded(std::string_view function, std::string_view argument,
                          const const_encoded_view& view, std::size_t needed) {
  check_encoded(function, argument, view.data, view.bytes, view.report, needed);
}

/// The arena of `argument` may be null; if not, at least one of its regions has a counter, which is a
/// multiple of 16, and data (16-byte aligned) unless it is empty; a region without a counter is empty. The
/// counters of a device are not read.
void check_arena(std::string_view function, std::string_view argument, const overflow_arena* arena,
                 memory_space where = memory_space::host);

void check_rule(std::string_view function, framework_rule rule, std::string_view argument = "rule");

/// The bounds with which values of a map of this type are compared.
std::pair<float, float> rounded_bounds(dtype type, float lower, float upper);

// --- reports ---------------------------------------------------------------------------------------------

// A report may be shared by concurrent calls, so every update is atomic. Relaxed order is enough: the caller
// reads the record after the calls have returned.
inline void or_bits(std::uint32_t& word, std::uint32_t bits) noexcept {
  // Looking first keeps threads that report the same bits over and over from fighting for the cache line.
  const std::atomic_ref<std::uint32_t> shared(word);
  if ((shared.load(std::memory_order_relaxed) & bits) != bits)
    shared.fetch_or(bits, std::memory_order_relaxed);
}
inline void add(std::uint64_t& word, std::uint64_t amount) noexcept {
  std::atomic_ref<std::uint64_t>(word).fetch_add(amount, std::memory_order_relaxed);
}
/// The same; returns what it was before.
inline std::uint64_t claim(std::uint64_t& word, std::uint64_t amount) noexcept {
  return std::atomic_ref<std::uint64_t>(word).fetch_add(amount, std::memory_order_relaxed);
}

// --- loops -----------------------------------------------------------------------------------------------

/// Runs body(begin, end) over ranges that cover [0, count), on the caller's threads if it brought any. They
/// round to nearest, whatever mode they are in.
template <class Body>
void parallel_for(const execution_context& context, std::int64_t count, std::int64_t grain, Body&& body) {
  if (count <= 0) return;
  if (context.parallel_for == nullptr) {
    in_default_rounding([&] { body(std::int64_t{0}, count); });
    return;
  }
  using body_type = std::remove_reference_t<Body>;
  const auto call = [](void* state, std::int64_t begin, std::int64_t end) {
    in_default_rounding([&] { (*static_cast<body_type*>(state))(begin, end); });
  };
  body_type& state = body;
  context.parallel_for(context.user, count, grain, call, const_cast<std::remove_const_t<body_type>*>(&state));
}

/// Least tiles of a range.
inline constexpr std::int64_t tiles_of_range = 32;

/// Runs body(tile, first_element, length) for every tile of 1,024 elements (the last may be shorter). A tile
/// starts at a whole byte of every plane, so tiles can be written concurrently. finish() runs on each thread
/// after its tiles.
template <class Body, class Finish>
void for_each_tile(const execution_context& context, std::int64_t elements, const Body& body,
                   const Finish& finish) {
  parallel_for(context, tile_count(elements), tiles_of_range, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t first = tile * tile_elements;
      body(tile, first, std::min(tile_elements, elements - first));
    }
    finish();
  });
}
template <class Body>
void for_each_tile(const execution_context& context, std::int64_t elements, const Body& body) {
  for_each_tile(context, elements, body, [] {});
}

// --- pitched views ---------------------------------------------------------------------------------------

/// Calls run(memory_offset, position, length) for the contiguous runs of elements [first, first + length) of
/// a view with this inner length and pitch; offsets count elements, positions start at 0.
template <class Run>
void for_each_run(std::int64_t inner, std::int64_t pitch, std::int64_t first, std::int64_t length,
                  const Run& run) {
  std::int64_t pixel = first / inner;
  std::int64_t channel = first % inner;
  for (std::int64_t done = 0; done < length; ++pixel, channel = 0) {
    const std::int64_t part = std::min(inner - channel, length - done);
    run(pixel * pitch + channel, done, part);
    done += part;
  }
}

/// Elements [first, first + length) as one dense run: inside the tensor if it is dense, else copied to
/// `buffer`.
template <class T>
const T* read_run(const const_tensor_view& view, std::int64_t first, std::int64_t length, T* buffer) {
  const T* data = view.as<T>();
  if (view.dense()) return data + first;
  for_each_run(view.dims.inner(), view.pitch(), first, length,
               [&](std::int64_t offset, std::int64_t position, std::int64_t part) {
                 std::memcpy(buffer + position, data + offset, static_cast<std::size_t>(part) * sizeof(T));
               });
  return buffer;
}

/// Where to produce elements starting at `first`: inside the tensor if it is dense, else `buffer`, from
/// which write_run() then takes them.
template <class T>
T* write_target(const tensor_view& view, std::int64_t first, T* buffer) {
  return view.dense() ? view.as<T>() + first : buffer;
}

/// Completes write_target(): copies the run into a pitched view, does nothing for a dense one.
template <class T>
void write_run(const tensor_view& view, std::int64_t first, std::int64_t length, const T* buffer) {
  if (view.dense()) return;
  T* data = view.as<T>();
  for_each_run(view.dims.inner(), view.pitch(), first, length,
               [&](std::int64_t offset, std::int64_t position, std::int64_t part) {
                 std::memcpy(data + offset, buffer + position, static_cast<std::size_t>(part) * sizeof(T));
               });
}

}  // namespace stash::encoders
