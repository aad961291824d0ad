// SPDX-License-Identifier: Apache-2.0
// Unzipping: what comes out is bounded, and what was zipped comes back.

#include "data/gz.hpp"

#include "fuzz/data_checks.hpp"

namespace stash::fuzz {
namespace {

struct gz_header {
  std::uint16_t limit = 0;
};

bool is_gz(const bytes& content) {
  return content.size() >= 2 && content[0] == 0x1f && content[1] == 0x8b;
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const auto header = take<gz_header>(input);
  const bytes content(input.begin(), input.end());
  accepts_or_refuses([&] {
    const bytes out = data::unzip_if_gz(content, "fuzz", header.limit);
    require(is_gz(content) ? out.size() <= header.limit : out == content,
            "the limit holds; other bytes stay");
  });
  require(data::unzip_if_gz(zipped(content), "fuzz") == content, "what was zipped comes back");
}

std::vector<bytes> seeds() {
  const bytes text(300, 'a'), none;
  bytes two = zipped(text);
  const bytes more = zipped({1, 2, 3});
  two.insert(two.end(), more.begin(), more.end());
  std::vector<bytes> all;
  for (const bytes& content : {zipped(text), zipped(none), two, text, none}) {
    for (const std::uint16_t limit : {std::uint16_t{0xffff}, std::uint16_t{100}})
      all.push_back(with_header(gz_header{limit}, content));
  }
  return all;
}

}  // namespace stash::fuzz
