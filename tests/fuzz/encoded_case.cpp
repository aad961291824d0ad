// SPDX-License-Identifier: Apache-2.0
#include "fuzz/encoded_case.hpp"

#include <bit>
#include <random>

#include "stash/cpu.hpp"

namespace stash::fuzz {
namespace {

constexpr dtype types[] = {dtype::f32, dtype::f16, dtype::bf16};

bool is_sixteen_bits(value_format format) {
  const value_format_info* const info = info_of(format);
  return info != nullptr && info->bits == 16;
}

/// The part of the bytes after the header that is the arena, or the slot before it.
std::span<const std::uint8_t> part(std::span<const std::uint8_t> input, bool arena) {
  const auto header = take<encoded_header>(input);
  const std::size_t size = std::min<std::size_t>(header.arena_bytes, input.size());
  return arena ? input.last(size) : input.first(input.size() - size);
}

/// Values as a ReLU leaves them, a few negative ones and other patterns between them, in `type`.
bytes make_tensor(dtype type, std::int64_t elements, std::minstd_rand& random) {
  bytes tensor;
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto kind = random() % 20;
    float value = kind < 9 ? 0.0F : static_cast<float>(random() % 4096) / 64.0F;
    if (kind == 19) value = -value;
    auto bits = std::bit_cast<std::uint32_t>(value);
    if (kind == 18) bits = static_cast<std::uint32_t>(random()) << 1;
    // The upper half is a bf16; read as an f16 it is some number too.
    const std::size_t skip = 4 - size_of(type);
    for (std::size_t byte = skip; byte < 4; ++byte)
      tensor.push_back(static_cast<std::uint8_t>(bits >> (8 * byte)));
  }
  return tensor;
}

/// Where tiles lie.
enum class tiles : std::uint8_t { slot, arena, host };

bytes make_seed(const encoding& e, const encoded_header& header, tiles where) {
  const bool overflowing = where != tiles::slot;
  std::minstd_rand random(header.elements + 1U);
  const dtype type = types[header.type];
  const exact_buffer tensor(make_tensor(type, header.elements, random));
  const const_tensor_view view{tensor.data(), type, memory_space::host, {header.elements}};
  const std::size_t exact = encoded_bytes_exact(e, view, {});
  // Half of the payloads, about; small tensors have no more than the fixed part.
  const std::size_t least = header.elements / 8U + 64U + header.elements / 256U;
  const std::size_t slot_bytes = overflowing ? std::min(exact, (exact + least) / 2) : exact;
  const exact_buffer slot(slot_bytes, 0), memory(overflowing ? exact : 0, 0);
  std::uint64_t claimed = 0;
  overflow_arena arena{memory.data(), memory.size(), &claimed};
  if (where == tiles::host) arena = {nullptr, 0, nullptr, memory.data(), memory.size(), &claimed};
  encode_report report;
  encode(e, view, {slot.data(), slot.size(), overflowing ? &arena : nullptr, &report}, {}, {});
  encoded_header written = header;
  written.arena_bytes = static_cast<std::uint16_t>(claimed);
  written.report_flags = static_cast<std::uint16_t>(report.flags);
  written.checksum = report.checksum;
  bytes stored(slot.size() + claimed);
  std::copy_n(slot.data(), slot.size(), stored.data());
  std::copy_n(memory.data(), claimed, stored.data() + slot.size());
  return with_header(written, stored);
}

}  // namespace

encoded_case::encoded_case(std::span<const std::uint8_t> input, std::span<const std::string> names)
    : slot_(part(input, false)), arena_memory_(part(input, true)) {
  header = take<encoded_header>(input);
  how = parse_encoding(names[header.name % names.size()]);
  how.underflow = static_cast<underflow_rule>(header.choices & 1);
  how.rule = static_cast<framework_rule>(header.choices >> 1 & 1);
  type = types[header.type % std::size(types)];
  if (how.kind == encoding_kind::cast && is_sixteen_bits(how.values)) type = dtype::f32;
  const std::int64_t inner = header.inner + 1;
  const std::int64_t elements = header.elements > max_elements ? header.elements % 256 : header.elements;
  dims = {elements / inner, inner};
  pitch = inner + header.gap % 4;
  static const std::vector<std::string> known = cpu_targets();
  target = known[header.target % known.size()];
  arena_ = {arena_memory_.data(), arena_memory_.size(), &claimed_};
  if ((header.gap & 4) == 0) {
    arena_.host_data = arena_memory_.data();
    arena_.host_bytes = arena_memory_.size();
    arena_.host_claimed = &claimed_;
  }
}

std::size_t encoded_case::tensor_bytes(dtype element) const {
  return static_cast<std::size_t>(dims[0] * pitch) * size_of(element);
}

const_encoded_view encoded_case::view(encode_report& report) const {
  report = {};
  report.flags = header.report_flags;
  report.checksum = header.checksum;
  const bool with_arena = (header.choices & 4) == 0;
  return {slot_.data(), slot_.size(), with_arena ? &arena_ : nullptr, &report};
}

tensor_view encoded_case::tensor(const exact_buffer& memory, dtype element) const {
  return {memory.data(), element, memory_space::host, dims, pitch};
}

bool encoded_case::gaps_are(const exact_buffer& memory, dtype element, std::uint8_t fill) const {
  if (pitch == dims.inner()) return true;
  const std::size_t row = static_cast<std::size_t>(dims.inner()) * size_of(element);
  const std::size_t stride = static_cast<std::size_t>(pitch) * size_of(element);
  for (std::size_t begin = 0; begin + stride <= memory.size(); begin += stride) {
    if (std::any_of(memory.data() + begin + row, memory.data() + begin + stride,
                    [fill](std::uint8_t byte) { return byte != fill; }))
      return false;
  }
  return true;
}

bool encoded_case::same_rows(const exact_buffer& a, const exact_buffer& b, dtype element) const {
  if (pitch == dims.inner()) return a == b;
  const std::size_t row = static_cast<std::size_t>(dims.inner()) * size_of(element);
  const std::size_t stride = static_cast<std::size_t>(pitch) * size_of(element);
  for (std::size_t begin = 0; begin + stride <= a.size(); begin += stride) {
    if (std::memcmp(a.data() + begin, b.data() + begin, row) != 0) return false;
  }
  return true;
}

std::vector<bytes> encoded_seeds(std::span<const std::string> names) {
  std::vector<bytes> all;
  for (std::size_t name = 0; name < names.size(); ++name) {
    const encoding e = parse_encoding(names[name]);
    const bool sparse = e.kind == encoding_kind::bitmap || e.kind == encoding_kind::csr;
    for (std::uint8_t type = 0; type < std::size(types); ++type) {
      if (type != 0 && e.kind == encoding_kind::cast && is_sixteen_bits(e.values)) continue;
      static constexpr std::uint16_t sizes[] = {0, 5, 96, 257, 1030, 2100};
      for (const std::uint16_t elements : sizes) {
        encoded_header header;
        header.elements = elements;
        header.name = static_cast<std::uint8_t>(name);
        header.type = type;
        header.target = static_cast<std::uint8_t>(elements % 4);
        header.choices = static_cast<std::uint8_t>(elements & 3);
        all.push_back(make_seed(e, header, tiles::slot));
        if (!sparse || elements <= 1024) continue;
        all.push_back(make_seed(e, header, tiles::arena));
        all.push_back(make_seed(e, header, tiles::host));
      }
    }
  }
  return all;
}

}  // namespace stash::fuzz
