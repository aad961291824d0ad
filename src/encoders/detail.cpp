// SPDX-License-Identifier: Apache-2.0
#include "encoders/detail.hpp"

#include <fmt/format.h>

#include "encoders/device/device_memory.hpp"
#include "encoders/format/convert.hpp"
#include "encoders/format/run_loops.hpp"

namespace stash::encoders {
namespace {

bool aligned(const void* data, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

}  // namespace

bool is_known(memory_space space) noexcept {
  return space == memory_space::host || space == memory_space::device || space == memory_space::pinned_host;
}

std::string_view type_name(dtype type) noexcept {
  switch (type) {
    case dtype::f32:
      return "f32";
    case dtype::f16:
      return "f16";
    case dtype::bf16:
      return "bf16";
    case dtype::u8:
      return "u8";
    case dtype::s32:
      return "s32";
  }
  return "an unknown type";
}

void fail(errc code, std::string_view function, std::string_view argument, std::string_view expected,
          std::string_view got) {
  throw error(code, fmt::format("{}: {}: expected {}, got {}", function, argument, expected, got));
}

void check_context(std::string_view function, const execution_context& context) {
  if (on_device(context)) return device::check_available(function);
  if (context.space != memory_space::host) {
    fail(errc::invalid_argument, function, "context", "one of the host or of a device",
         fmt::format("one of memory space {}", static_cast<unsigned>(context.space)));
  }
  check_cpu_target(function);
}

void device::check_available(std::string_view function) {
  const backend* const found = registered_backend();
  if (found == nullptr) {
    fail(errc::unsupported, function, "context", "a host context, or a build with CUDA", "a device context");
  }
  found->memory->check_available(function);
}

const device::memory_calls& device::memory_for(std::string_view function) {
  const backend* const found = registered_backend();
  if (found == nullptr) fail(errc::unsupported, function, "device", "a build with CUDA", "one without");
  return *found->memory;
}

namespace {

template <class View>
std::int64_t checked_elements(std::string_view function, std::string_view argument, const View& view,
                              dtype type, memory_space where) {
  if (view.type != type)
    fail(errc::invalid_argument, function, argument, type_name(type), type_name(view.type));
  if (size_of(type) == 0) fail(errc::invalid_argument, function, argument, "a known type", type_name(type));
  if (!is_known(view.space)) {
    fail(errc::invalid_argument, function, argument, "memory of the host or of a device",
         fmt::format("memory space {}", static_cast<unsigned>(view.space)));
  }
  if (where == memory_space::host && view.space == memory_space::device) {
    fail(errc::unsupported, function, argument, "host memory", "device memory");
  }
  // Pinned memory is mapped into the device.
  if (where == memory_space::device && view.space == memory_space::host) {
    fail(errc::invalid_argument, function, argument, "device memory, as the context says", "host memory");
  }
  const std::int64_t inner = view.dims.inner();
  const std::int64_t pitch = view.pitch();
  if (pitch < inner) {
    fail(errc::invalid_argument, function, argument, fmt::format("a pixel pitch of at least {}", inner),
         fmt::format("{}", pitch));
  }
  const std::int64_t elements = view.elements();
  if (elements == 0) return 0;
  // Of a dense view the shape has said so. Divisions are a good part of a call on a small map.
  if (pitch != inner && pitch > max_elements / (elements / inner)) {
    fail(errc::invalid_argument, function, argument, "a view of at most 2^56 elements, gaps included",
         fmt::format("{} pixels of pitch {}", elements / inner, pitch));
  }
  if (view.data == nullptr) fail(errc::invalid_argument, function, argument, "data", "a null pointer");
  if (!aligned(view.data, size_of(type))) {
    fail(errc::invalid_argument, function, argument, fmt::format("data aligned to {} bytes", size_of(type)),
         fmt::format("{}", view.data));
  }
  return elements;
}

template <class View>
std::int64_t checked_float_elements(std::string_view function, std::string_view argument, const View& view,
                                    memory_space where) {
  if (view.type == dtype::u8 || view.type == dtype::s32 || size_of(view.type) == 0) {
    fail(errc::invalid_argument, function, argument, "f32, f16 or bf16", type_name(view.type));
  }
  return checked_elements(function, argument, view, view.type, where);
}

template <class View>
std::int64_t checked_pair(std::string_view function, std::string_view first_name,
                          const const_tensor_view& first, std::string_view second_name, const View& second,
                          memory_space where) {
  const std::int64_t elements = checked_float_elements(function, first_name, first, where);
  if (checked_elements(function, second_name, second, first.type, where) != elements)
    check_elements(function, second_name, second, elements);
  return elements;
}

}  // namespace

std::int64_t check_view(std::string_view function, std::string_view argument, const const_tensor_view& view,
                        dtype type, memory_space where) {
  return checked_elements(function, argument, view, type, where);
}
std::int64_t check_view(std::string_view function, std::string_view argument, const tensor_view& view,
                        dtype type, memory_space where) {
  return checked_elements(function, argument, view, type, where);
}

std::int64_t check_float_view(std::string_view function, std::string_view argument,
                              const const_tensor_view& view, memory_space where) {
  return checked_float_elements(function, argument, view, where);
}
std::int64_t check_float_view(std::string_view function, std::string_view argument, const tensor_view& view,
                              memory_space where) {
  return checked_float_elements(function, argument, view, where);
}

void check_elements(std::string_view function, std::string_view argument, const const_tensor_view& view,
                    std::int64_t elements) {
  if (view.elements() == elements) return;
  fail(errc::invalid_argument, function, argument, fmt::format("{} elements", elements),
       fmt::format("{}", view.elements()));
}

std::int64_t check_float_pair(std::string_view function, std::string_view first_name,
                              const const_tensor_view& first, std::string_view second_name,
                              const const_tensor_view& second, memory_space where) {
  return checked_pair(function, first_name, first, second_name, second, where);
}
std::int64_t check_float_pair(std::string_view function, std::string_view first_name,
                              const const_tensor_view& first, std::string_view second_name,
                              const tensor_view& second, memory_space where) {
  return checked_pair(function, first_name, first, second_name, second, where);
}

void check_encoded(std::string_view function, std::string_view argument, const void* data, std::size_t bytes,
                   const encode_report* report, std::size_t needed) {
  if (report == nullptr || !aligned(report, alignof(encode_report))) {
    fail(errc::invalid_argument, function, argument, "a report",
         report == nullptr ? "null" : "a misaligned one");
  }
  if (bytes < needed) {
    fail(errc::capacity_exceeded, function, argument, fmt::format("at least {} bytes", needed),
         fmt::format("{}", bytes));
  }
  if (needed == 0) return;
  if (data == nullptr) fail(errc::invalid_argument, function, argument, "data", "a null pointer");
  if (!aligned(data, encoded_alignment)) {
    fail(errc::invalid_argument, function, argument,
         fmt::format("data aligned to {} bytes", encoded_alignment), fmt::format("{}", data));
  }
}

void check_arena(std::string_view function, std::string_view argument, const overflow_arena* arena,
                 memory_space where) {
  if (arena == nullptr) return;
  const bool any = arena->claimed != nullptr || arena->host_claimed != nullptr;
  const auto check_region = [&](std::string_view member, const void* data, std::uint64_t bytes,
                                std::uint64_t* claimed) {
    const auto refuse = [&](std::string_view expected, const std::string& got) {
      fail(errc::invalid_argument, function, fmt::format("{}.{}", argument, member), expected, got);
    };
    if (claimed == nullptr && any && bytes == 0) return;
    if (claimed == nullptr || !aligned(claimed, alignof(std::uint64_t)))
      refuse("an aligned counter", fmt::format("{}", fmt::ptr(claimed)));
    if (where != memory_space::device) {
      const std::uint64_t count = std::atomic_ref<std::uint64_t>(*claimed).load(std::memory_order_relaxed);
      if (count % encoded_alignment != 0)
        refuse("a counter that is a multiple of 16", fmt::format("{}", count));
    }
    if (bytes != 0 && (data == nullptr || !aligned(data, encoded_alignment)))
      refuse("data aligned to 16 bytes", fmt::format("{}", data));
  };
  check_region("overflow", arena->data, arena->bytes, arena->claimed);
  check_region("overflow.host_data", arena->host_data, arena->host_bytes, arena->host_claimed);
}

void check_rule(std::string_view function, framework_rule rule, std::string_view argument) {
  if (rule == framework_rule::tensorflow || rule == framework_rule::pytorch) return;
  fail(errc::invalid_argument, function, argument, "a known framework rule",
       fmt::format("{}", static_cast<unsigned>(rule)));
}

std::pair<float, float> rounded_bounds(dtype type, float lower, float upper) {
  return in_default_rounding([&] { return std::pair(rounded_to(type, lower), rounded_to(type, upper)); });
}

}  // namespace stash::encoders
