// SPDX-License-Identifier: Apache-2.0
// The CIFAR-10 reader: records of unknown content after a data set that has some already.

#include "data/dataset.hpp"
#include "fuzz/data_checks.hpp"

namespace stash::fuzz {
namespace {

/// Records are long, so a short input is repeated.
struct cifar_header {
  std::uint8_t records = 0;  ///< modulo 4, and 16 more from 240 on
  std::int8_t bytes_more = 0;
  std::uint8_t records_before = 0;  ///< modulo 3
};

constexpr std::size_t record_bytes = 3073;

/// The input again and again; zeros if it is empty.
bytes repeated(std::span<const std::uint8_t> input, std::size_t size) {
  bytes out(size);
  if (input.empty()) return out;
  std::copy_n(input.begin(), std::min(size, input.size()), out.begin());
  for (std::size_t done = input.size(); done < size; done *= 2)
    std::copy_n(out.begin(), std::min(done, size - done), out.begin() + static_cast<std::ptrdiff_t>(done));
  return out;
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const auto header = take<cifar_header>(input);
  const std::ptrdiff_t whole = header.records % 4 + (header.records < 240 ? 0 : 16);
  const std::ptrdiff_t size = whole * static_cast<std::ptrdiff_t>(record_bytes) + header.bytes_more;
  const bytes records = repeated(input, size < 0 ? 0 : static_cast<std::size_t>(size));
  data::dataset d;
  const std::size_t before = header.records_before % 3;
  if (before != 0) data::parse_cifar10(bytes(before * record_bytes, 7), "before", d);
  const data::dataset unchanged = d;
  const bool accepted = accepts_or_refuses([&] { data::parse_cifar10(records, "fuzz", d); });
  if (accepted) {
    require_consistent(d);
    require(static_cast<std::size_t>(d.count) == before + records.size() / record_bytes,
            "a record, an image");
  } else {
    require(d.count == unchanged.count && d.images == unchanged.images && d.labels == unchanged.labels,
            "an error changes nothing");
  }
}

std::vector<bytes> seeds() {
  std::vector<bytes> all;
  for (const std::uint8_t records : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{3}}) {
    all.push_back(with_header(cifar_header{records, 0, records}, bytes{3}));
    all.push_back(with_header(cifar_header{records, 1, 1}, bytes{9, 1, 0}));
  }
  return all;
}

}  // namespace stash::fuzz
