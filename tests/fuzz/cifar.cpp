// The CIFAR-10 reader: records of unknown content behind a data set that has some already.

#include "data/dataset.hpp"
#include "fuzz/data_checks.hpp"

namespace stash::fuzz {
namespace {

/// Records are long, so a short input is repeated.
struct cifar_header {
  std::uint16_t bytes = 0;
  std::uint16_t records_before = 0;  ///< modulo 3
};

constexpr std::size_t record_bytes = 3073;

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const auto header = take<cifar_header>(input);
  bytes records(header.bytes);
  for (std::size_t i = 0; i < records.size() && !input.empty(); ++i)
    records[i] = input[i % input.size()];
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
  for (const std::uint16_t records : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{3}}) {
    const auto size = static_cast<std::uint16_t>(records * record_bytes);
    all.push_back(with_header(cifar_header{size, records}, bytes{3}));
    all.push_back(with_header(cifar_header{static_cast<std::uint16_t>(size + 1), 1}, bytes{9, 1, 0}));
  }
  return all;
}

}  // namespace stash::fuzz
