// SPDX-License-Identifier: Apache-2.0
#include "fuzz/decode_checks.hpp"

#include "stash/cpu.hpp"
#include "stash/csr.hpp"
#include "stash/error.hpp"

namespace stash::fuzz {
namespace {

/// What is decoded to: masks become bytes or, in other inputs, values of the case's type.
dtype decoded_type(const encoded_case& c) {
  const bool mask = c.how.kind == encoding_kind::sign_mask || c.how.kind == encoding_kind::range_mask;
  return mask && (c.header.other & 16) == 0 ? dtype::u8 : c.type;
}

/// Runs a call; true if it returned, false if it threw the one error that its input can cause.
template <class Call>
bool returns(errc expected, const Call& call) {
  try {
    call();
    return true;
  } catch (const error& e) {
    require(e.code() == expected, e.what());
    return false;
  }
}

void check_canonical(const encoded_case& c, const exact_buffer& decoded, std::uint32_t decode_status) {
  encode_report from, to, again;
  // As much as a valid tensor of this size can need, or less.
  const std::size_t bound = encoded_bytes_bound(c.how, c.type, c.elements());
  const exact_buffer canonical(bound - bound * (c.header.other & 15) / 64 / 16 * 16, 0xa5);
  const encoded_view output{canonical.data(), canonical.size(), nullptr, &to};
  const bool done = returns(errc::capacity_exceeded, [&] {
    canonicalise({c.how, c.type, {c.elements()}, c.view(from)}, output, {});
  });
  if (!done || ((from.status | to.status) & (status_corrupt | status_capacity)) != 0) return;
  if ((decode_status & (status_corrupt | status_capacity)) != 0) return;
  const dtype type = decoded_type(c);
  const exact_buffer back(c.tensor_bytes(type), 0);
  decode({c.how,
          c.tensor(back, type).type,
          c.tensor(back, type).dims,
          {canonical.data(), canonical.size(), nullptr, &again}},
         c.tensor(back, type), {}, {});
  require(again.status == status_ok, "canonical bytes decode");
  require(c.same_rows(back, decoded, type), "canonical bytes stand for the same tensor");
}

void check_export(const encoded_case& c) {
  const std::int64_t elements = c.elements();
  const auto rows = static_cast<std::size_t>((elements + csr_row_elements - 1) / csr_row_elements);
  const std::int64_t capacity = elements - std::min<std::int64_t>(elements, c.header.other >> 4 & 15);
  const auto entries = static_cast<std::size_t>(capacity);
  const exact_buffer offsets((rows + 1) * 4, 0xa5), columns(entries * 4, 0xa5),
      values(entries * size_of(c.type), 0xa5);
  encode_report report;
  std::int64_t count = -1;
  try {
    count = csr_export32({c.how, c.type, {elements}, c.view(report)},
                         {reinterpret_cast<std::uint32_t*>(offsets.data()),
                          reinterpret_cast<std::uint32_t*>(columns.data()), values.data(), c.type, capacity},
                         {});
  } catch (const error& e) {
    require(e.code() == errc::capacity_exceeded || e.code() == errc::corrupt_data, e.what());
    return;
  }
  require(count >= 0 && count <= capacity, "the count fits");
  const auto* offset = reinterpret_cast<const std::uint32_t*>(offsets.data());
  const auto* column = reinterpret_cast<const std::uint32_t*>(columns.data());
  require(offset[0] == 0 && offset[rows] == static_cast<std::uint32_t>(count), "rows cover the entries");
  require(std::is_sorted(offset, offset + rows + 1), "row offsets rise");
  require(std::all_of(column, column + count, [](std::uint32_t at) { return at < csr_row_elements; }),
          "columns lie in the row");
}

}  // namespace

void check_decoders(std::span<const std::uint8_t> input, std::span<const std::string> names) {
  const encoded_case c(input, names);
  const dtype type = decoded_type(c);
  const exact_buffer plain(c.tensor_bytes(type), 0x00), fast(c.tensor_bytes(type), 0xff);
  encode_report plain_report, fast_report;
  set_cpu_target("scalar");
  const bool long_enough = returns(errc::capacity_exceeded, [&] {
    decode({c.how, c.tensor(plain, type).type, c.tensor(plain, type).dims, c.view(plain_report)},
           c.tensor(plain, type), {}, {});
  });
  set_cpu_target(c.target);
  const bool again = returns(errc::capacity_exceeded, [&] {
    decode({c.how, c.tensor(fast, type).type, c.tensor(fast, type).dims, c.view(fast_report)},
           c.tensor(fast, type), {}, {});
  });
  require(long_enough == again, "both or neither are refused");
  if (!long_enough) {
    require(fast_report.status == status_ok && fast.holds_only(0xff), "a refused call writes nothing");
    return;
  }
  require(plain_report.status == fast_report.status, "one status");
  // Decoded into different bytes: an element that is left out, or read before it is written, differs.
  require(c.same_rows(plain, fast, type), "one tensor");
  require(c.gaps_are(plain, type, 0x00) && c.gaps_are(fast, type, 0xff), "gaps between rows stay");
  check_canonical(c, fast, fast_report.status);
  if (c.how.kind == encoding_kind::csr) check_export(c);
}

}  // namespace stash::fuzz
