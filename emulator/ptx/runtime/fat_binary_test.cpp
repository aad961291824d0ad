// SPDX-License-Identifier: Apache-2.0
// Fat binaries: which PTX comes out of one, and that no malformed one is read beyond its end.

#include "ptx/runtime/fat_binary.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ptx/runtime/made_fat_binary.hpp"

namespace stash::ptx {
namespace {

using bytes = std::vector<std::byte>;

constexpr std::uint64_t lz4 = 0x2011, zstd = 0x8011;

std::string text_for(int architecture) {
  std::string text = "\n.version 9.0\n.target sm_" + std::to_string(architecture) + "\n";
  for (int line = 0; line < 20; ++line)
    text += "// line " + std::to_string(line) + "\n";
  return text;
}

fat_entry plain(std::uint32_t architecture) {
  // Whole words.
  std::string text = text_for(static_cast<int>(architecture));
  text.resize((text.size() / 8 + 1) * 8);
  return {text, architecture};
}

fat_entry compressed_by_zstd(const std::string& text, std::uint32_t architecture) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3);
  EXPECT_EQ(ZSTD_isError(size), 0U);
  packed.resize((size / 8 + 1) * 8);
  return {packed, architecture, 1, zstd, static_cast<std::uint32_t>(size), text.size(), 80};
}

fat_entry elf(std::uint32_t architecture) {
  return {"\177ELF not for this machine", architecture, 2};
}

std::string problem_of(const bytes& fat_binary) {
  try {
    (void)ptx_of(fat_binary, 90);
  } catch (const std::runtime_error& problem) {
    return problem.what();
  }
  return "none";
}

/// The fat binary with a number in it changed.
template <class T>
bytes with(bytes fat_binary, std::size_t offset, T value) {
  put(fat_binary, offset, value);
  return fat_binary;
}

constexpr std::size_t first = container_header_bytes;

TEST(fat_binary, plain_text_ends_where_its_padding_begins) {
  EXPECT_EQ(ptx_of(made_fat_binary({plain(90)}), 90), text_for(90));
  // Without padding, and after a longer header.
  EXPECT_EQ(ptx_of(made_fat_binary({{".version 9.0"}}), 90), ".version 9.0");
  fat_entry e = plain(90);
  e.header_bytes = 96;
  EXPECT_EQ(ptx_of(made_fat_binary({elf(90), e}), 90), text_for(90));
}

TEST(fat_binary, compressed_text_is_that_which_was_compressed) {
  EXPECT_EQ(ptx_of(made_fat_binary({compressed_by_zstd(text_for(90), 90)}), 90), text_for(90));
  std::string large;
  std::mt19937 draw(7);
  while (large.size() < (std::size_t{1} << 20))
    large += "add.s32 %r" + std::to_string(draw() % 1000) + ", %r1, %r2;\n";
  EXPECT_EQ(ptx_of(made_fat_binary({compressed_by_zstd(large, 90)}), 90), large);
}

TEST(fat_binary, the_newest_that_the_device_can_take_is_chosen) {
  const bytes several =
      made_fat_binary({plain(80), elf(90), compressed_by_zstd(text_for(100), 100), elf(80),
                       compressed_by_zstd(text_for(90), 90), plain(75), plain(120), elf(120)});
  EXPECT_EQ(ptx_of(several, 130), text_for(120));
  EXPECT_EQ(ptx_of(several, 119), text_for(100));
  EXPECT_EQ(ptx_of(several, 90), text_for(90));
  EXPECT_EQ(ptx_of(several, 89), text_for(80));
  EXPECT_EQ(ptx_of(several, 79), text_for(75));
  EXPECT_EQ(ptx_of(several, 74), "");
}

TEST(fat_binary, without_ptx_there_is_no_text) {
  EXPECT_EQ(ptx_of(made_fat_binary({}), 90), "");
  EXPECT_EQ(ptx_of(made_fat_binary({elf(90)}), 90), "");
  EXPECT_EQ(ptx_of(made_fat_binary({elf(90), plain(91)}), 90), "");
}

TEST(fat_binary, what_follows_the_container_is_none_of_it) {
  bytes fat_binary = made_fat_binary({plain(80)});
  const bytes other = made_fat_binary({plain(90)});
  fat_binary.insert(fat_binary.end(), other.begin(), other.end());
  EXPECT_EQ(ptx_of(fat_binary, 90), text_for(80));
}

TEST(fat_binary, containers_that_are_none_are_refused) {
  const bytes good = made_fat_binary({plain(90)});
  ASSERT_EQ(problem_of(good), "none");
  EXPECT_EQ(problem_of({}), "fat binary: expected 4 bytes at 0, got 0 in all");
  EXPECT_EQ(problem_of(with(good, 0, std::uint32_t{7})),
            "fat binary: expected a container of version 1, got version 1 of 7");
  EXPECT_EQ(problem_of(with(good, 4, std::uint16_t{2})),
            "fat binary: expected a container of version 1, got version 2 of 3126193488");
  const std::string size = std::to_string(good.size()), payload = std::to_string(good.size() - 16);
  EXPECT_EQ(problem_of(with(good, 6, std::uint16_t{17})),
            "fat binary: expected " + payload + " bytes at 17, got " + size + " in all");
  EXPECT_EQ(problem_of(with(good, 6, std::uint16_t{0xffff})),
            "fat binary: expected " + payload + " bytes at 65535, got " + size + " in all");
  EXPECT_EQ(
      problem_of(with(good, 8, std::uint64_t{good.size() - 15})),
      "fat binary: expected " + std::to_string(good.size() - 15) + " bytes at 16, got " + size + " in all");
  EXPECT_EQ(problem_of(with(good, 8, ~std::uint64_t{})),
            "fat binary: expected 18446744073709551615 bytes at 16, got " + size + " in all");
}

TEST(fat_binary, entries_with_wrong_sizes_are_refused) {
  const bytes good = made_fat_binary({plain(90), elf(90)});
  ASSERT_EQ(problem_of(good), "none");
  // With none at all, the entry would come again for ever.
  for (const std::uint32_t header : {0U, 8U, 63U})
    EXPECT_EQ(problem_of(with(good, first + 4, header)),
              "fat binary: expected an entry with a header of 64 bytes or more, got " +
                  std::to_string(header) + " bytes");
  for (const std::uint32_t header : {65U, 0xffffU, 0xffffffffU})
    EXPECT_NE(problem_of(with(good, first + 4, header)), "none");
  const std::uint64_t payload = plain(90).payload.size();
  for (const std::uint64_t wrong :
       {payload + 1, std::uint64_t{good.size()}, ~std::uint64_t{} - 63, ~std::uint64_t{} - payload - 127})
    EXPECT_NE(problem_of(with(good, first + 8, wrong)), "none") << wrong;
  // The last entry, whose end is that of the container.
  const std::size_t last = first + 64 + payload;
  EXPECT_NE(problem_of(with(good, last + 8, std::uint64_t{elf(90).payload.size() + 1})), "none");
  EXPECT_NE(problem_of(with(good, last + 8, std::uint64_t{elf(90).payload.size() - 1})), "none");
}

TEST(fat_binary, text_that_does_not_decompress_is_refused) {
  const std::string text = text_for(90);
  const fat_entry e = compressed_by_zstd(text, 90);
  const bytes good = made_fat_binary({e});
  ASSERT_EQ(problem_of(good), "none");
  EXPECT_EQ(problem_of(with(good, first + 16, static_cast<std::uint32_t>(e.payload.size() + 1))),
            "fat binary: expected compressed PTX of at most " + std::to_string(e.payload.size()) +
                " bytes, got " + std::to_string(e.payload.size() + 1));
  for (const std::uint32_t wrong : {0U, 1U, 5U, e.compressed_bytes - 1, e.compressed_bytes + 1, ~0U})
    EXPECT_NE(problem_of(with(good, first + 16, wrong)), "none") << wrong;
  for (const std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{text.size() - 1},
                                    std::uint64_t{text.size() + 1}, std::uint64_t{1} << 30, ~std::uint64_t{}})
    EXPECT_NE(problem_of(with(good, first + 56, wrong)), "none") << wrong;
  const std::string size = std::to_string(text.size());
  EXPECT_EQ(problem_of(with(good, first + 56, std::uint64_t{7})),
            "fat binary: expected PTX compressed by zstd from 7 bytes, got " + size);
  // No frame of zstd, and one whose content is cut off.
  EXPECT_EQ(problem_of(with(good, first + 80, std::uint32_t{0})),
            "fat binary: expected PTX compressed by zstd from " + size + " bytes, got no size");
  EXPECT_EQ(problem_of(with(good, first + 16, e.compressed_bytes - 1))
                .find("fat binary: expected PTX compressed by zstd, got "),
            0U);
}

TEST(fat_binary, compression_that_is_not_known_is_refused) {
  fat_entry e = compressed_by_zstd(text_for(90), 90);
  e.flags = lz4;
  EXPECT_EQ(problem_of(made_fat_binary({e})),
            "fat binary: expected PTX that is plain or compressed by zstd, got one compressed by LZ4");
  // Of a kind that may come one day.
  e.flags = 0x10011;
  EXPECT_EQ(problem_of(made_fat_binary({e})),
            "fat binary: expected PTX that is plain or compressed by zstd, got one of flags 65553");
  // It is not looked at where other PTX is chosen.
  EXPECT_EQ(ptx_of(made_fat_binary({e, plain(80)}), 89), text_for(80));
}

TEST(fat_binary, registrations_lead_to_their_containers) {
  const bytes fat_binary = made_fat_binary({elf(90), plain(90)});
  fat_registration r;
  r.data = fat_binary.data();
  const auto found = fat_binary_of(&r);
  EXPECT_EQ(found.data(), fat_binary.data());
  EXPECT_EQ(found.size(), fat_binary.size());

  const auto problem = [](const fat_registration& registered) -> std::string {
    try {
      (void)fat_binary_of(&registered);
    } catch (const std::runtime_error& refused) {
      return refused.what();
    }
    return "none";
  };
  EXPECT_EQ(problem(r), "none");
  EXPECT_EQ(problem({5, 1, fat_binary.data()}),
            "fat binary: expected a registration of version 1, got version 1 of 5");
  r.version = 2;
  EXPECT_EQ(problem(r), "fat binary: expected a registration of version 1, got version 2 of 1180844977");
  r.version = 1;
  const bytes other = with(fat_binary, 0, std::uint32_t{9});
  r.data = other.data();
  EXPECT_EQ(problem(r), "fat binary: expected a container, got 9");
}

/// Bytes that end where nothing may be read.
class cornered {
 public:
  explicit cornered(const bytes& content) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t usable = (content.size() / page + 1) * page;
    size_ = usable + page;
    begin_ = static_cast<std::byte*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (begin_ == MAP_FAILED || mprotect(begin_ + usable, page, PROT_NONE) != 0)
      throw std::runtime_error("no pages");
    std::byte* const start = begin_ + usable - content.size();
    std::copy(content.begin(), content.end(), start);
    held_ = {start, content.size()};
  }
  cornered(const cornered&) = delete;
  cornered& operator=(const cornered&) = delete;
  ~cornered() { munmap(begin_, size_); }
  std::span<const std::byte> held() const { return held_; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
  std::span<const std::byte> held_;
};

/// Nothing if it is refused; any other exception is none of those that the header names.
std::optional<std::string> text_or_nothing(std::span<const std::byte> fat_binary) {
  try {
    return ptx_of(fat_binary, 90);
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

/// At the end of a page, where each build notices what is read beyond it, and as large as it is on the heap,
/// where the address sanitizer does.
std::optional<std::string> read_at_edges(const bytes& fat_binary) {
  const cornered at_end_of_page(fat_binary);
  const bytes exact(fat_binary.begin(), fat_binary.end());
  std::optional<std::string> text = text_or_nothing(at_end_of_page.held());
  EXPECT_EQ(text_or_nothing(exact), text);
  return text;
}

std::vector<bytes> samples() {
  return {made_fat_binary({plain(90)}), made_fat_binary({compressed_by_zstd(text_for(90), 90)}),
          made_fat_binary({plain(80), elf(90), compressed_by_zstd(text_for(90), 90), plain(75)})};
}

TEST(fat_binary, every_truncation_is_refused) {
  for (const bytes& whole : samples()) {
    EXPECT_EQ(read_at_edges(whole), text_for(90));
    for (std::size_t size = 0; size < whole.size(); ++size)
      ASSERT_EQ(read_at_edges(bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size))),
                std::nullopt)
          << size;
  }
}

/// Bytes that mostly hit headers, and often are the largest or the smallest.
bytes mutated(bytes fat_binary, std::mt19937& draw) {
  for (auto n = 1 + draw() % 3; n > 0; --n) {
    const std::size_t within =
        draw() % 2 != 0 ? std::min<std::size_t>(fat_binary.size(), 96) : fat_binary.size();
    const auto value = static_cast<unsigned char>(draw());
    fat_binary[draw() % within] = std::byte{draw() % 3 != 0  ? value
                                            : value % 2 != 0 ? static_cast<unsigned char>(0xff)
                                                             : static_cast<unsigned char>(0)};
  }
  return fat_binary;
}

TEST(fat_binary, mutations_are_read_or_refused) {
  std::mt19937 draw(20);
  int read = 0, refused = 0;
  for (const bytes& whole : samples()) {
    for (int n = 0; n < 2000; ++n)
      ++(read_at_edges(mutated(whole, draw)) ? read : refused);
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace stash::ptx
