// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/maps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bench/cases/cases.hpp"
#include "bench/cases/groups.hpp"
#include "stash/encoding.hpp"

namespace stash::gpu {
namespace {

constexpr std::int64_t map_width = 16;
constexpr std::int64_t part_bytes = std::int64_t{32} << 20;

/// The f32 values as the bytes of another type.
std::vector<std::uint8_t> converted(const std::vector<float>& values, dtype type) {
  std::vector<std::uint8_t> bytes(values.size() * size_of(type));
  if (type == dtype::f32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  // A cast of f32 to a format of 16 bits is exactly a tensor of that type.
  const encoding e{.kind = encoding_kind::cast,
                   .values = type == dtype::f16 ? value_format::fp16 : value_format::bf16};
  const auto count = static_cast<std::int64_t>(values.size());
  const bench::page_buffer narrow(encoded_bytes_bound(e, dtype::f32, count));
  encode_report report{};
  encode(e, const_tensor_view{values.data(), dtype::f32, memory_space::host, {count}, 0},
         {narrow.data(), narrow.size(), nullptr, &report}, {}, {});
  std::memcpy(bytes.data(), narrow.data(), bytes.size());
  return bytes;
}

}  // namespace

shape map_form::dims() const {
  return {1, elements() / map_width / bench::map_channels, map_width, bench::map_channels};
}

shape map_form::pooled_dims() const {
  return {1, elements() / map_width / bench::map_channels / 2, map_width / 2, bench::map_channels};
}

device_map::device_map(dtype type, const shape& dims)
    : type_(type), dims_(dims), memory_(static_cast<std::size_t>(dims.elements()) * size_of(type)) {}

const map_source::bytes& map_source::first_part(const map_form& form, bool after_relu) {
  const std::int64_t size = std::min(form.bytes, part_bytes);
  const std::string key =
      fmt::format("{}/{}/{}/{}", name_of(form.type), bench::to_string(form.zeros), size, after_relu);
  bytes& part = parts_[key];
  if (part.empty()) {
    std::vector<float> values(static_cast<std::size_t>(size) / size_of(form.type));
    bench::fill_before_relu(values, form.zeros, bench::map_channels);
    if (after_relu) {
      for (float& v : values)
        v = std::max(v, 0.0F);
    }
    part = converted(values, form.type);
  }
  return part;
}

shared_map map_source::make(const map_form& form, bool after_relu) {
  const bytes& part = first_part(form, after_relu);
  auto made = std::make_shared<device_map>(form.type, form.dims());
  auto* const to = static_cast<std::uint8_t*>(made->data());
  upload(to, part.data(), part.size());
  for (std::size_t done = part.size(); done < made->bytes();) {
    const std::size_t more = std::min<std::size_t>(done, made->bytes() - done);
    copy_on_device(to + done, to, more, nullptr);
    done += more;
  }
  wait_for_device();
  return made;
}

const char* name_of(dtype type) {
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
  return "";
}

}  // namespace stash::gpu
