// SPDX-License-Identifier: Apache-2.0
// Damaged files by the hundred thousand: whatever the bytes, a parser returns a consistent data set or throws
// error(bad_format), and under the sanitizers it does nothing else.

#include <gtest/gtest.h>

#include <random>

#include "data/dataset.hpp"
#include "data/gz.hpp"
#include "data/support.hpp"
#include "support/test_depth.hpp"

namespace stash::data::test {
namespace {

const std::uint64_t executions = stash_test::cases(100000);

/// Changes one to four spots: a bit, a byte, an extreme value in a u32 field of the header, or the length.
class mutator {
 public:
  explicit mutator(std::uint32_t seed) : random_(seed) {}

  bytes operator()(bytes file) {
    for (std::size_t changes = 1 + below(4); changes > 0; --changes)
      change(file);
    return file;
  }

  std::size_t below(std::size_t bound) { return random_() % bound; }

 private:
  void change(bytes& file) {
    static constexpr std::uint32_t telling[] = {0,          1,          2,          9,          0x7FFFFFFF,
                                                0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x10000,    0x00000803,
                                                0x00000801, 0x1F8B0808, 0x40000000, 0x55555556, 0xFFFF};
    const std::size_t at =
        file.empty() ? 0 : below(below(2) == 0 ? std::min<std::size_t>(file.size(), 20) : file.size());
    switch (below(5)) {
      case 0:
        if (!file.empty()) file[at] ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 1:
        if (!file.empty()) file[at] = static_cast<std::uint8_t>(random_());
        break;
      case 2:
        if (file.size() >= 4) {
          bytes field;
          append_u32(field, telling[below(std::size(telling))]);
          std::copy(field.begin(), field.end(),
                    file.begin() + static_cast<std::ptrdiff_t>(at / 4 * 4 % (file.size() - 3)));
        }
        break;
      case 3:
        file.resize(at);
        break;
      default:
        file.resize(file.size() + below(10), static_cast<std::uint8_t>(random_()));
        break;
    }
  }

  std::minstd_rand random_;
};

void expect_consistent(const dataset& d) {
  ASSERT_GT(d.count, 0);
  ASSERT_EQ(d.images.size(), static_cast<std::size_t>(d.count * d.image_bytes()));
  ASSERT_EQ(d.labels.size(), static_cast<std::size_t>(d.count));
  for (const std::int32_t label : d.labels)
    ASSERT_TRUE(label >= 0 && label < d.classes);
}

/// Runs `parse` on `executions` mutated inputs; it returns normally or throws error(bad_format). Both have to
/// happen, or the mutations would test nothing.
template <class Parse>
void run(const Parse& parse) {
  std::uint64_t accepted = 0, rejected = 0;
  for (std::uint64_t i = 0; i < executions; ++i) {
    try {
      parse(static_cast<std::uint32_t>(i + 1));
      ++accepted;
    } catch (const error& e) {
      ASSERT_EQ(e.code(), errc::bad_format) << e.what();
      ++rejected;
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(accepted, executions / 100);
  EXPECT_GT(rejected, executions / 100);
}

TEST(mutation, of_idx) {
  const bytes images = idx_images(3, 4, 3);
  const bytes labels = idx_labels(3);
  run([&](std::uint32_t seed) {
    mutator mutate(seed);
    const std::size_t which = mutate.below(3);  // one of the two files or both
    expect_consistent(
        parse_idx(which == 0 ? images : mutate(images), which == 1 ? labels : mutate(labels), "mutated"));
  });
}

TEST(mutation, of_cifar) {
  const bytes records = cifar_records(2);
  run([&](std::uint32_t seed) {
    mutator mutate(seed);
    dataset d;
    parse_cifar10(mutate(records), "mutated", d);
    expect_consistent(d);
  });
}

TEST(mutation, of_gz) {
  const bytes images = idx_images(5, 4, 4);
  const bytes labels = idx_labels(5);
  const bytes zipped = gz(images);
  run([&](std::uint32_t seed) {
    mutator mutate(seed);
    // Some are accepted: the time and the system in the header of a gz member mean nothing here.
    expect_consistent(parse_idx(unzip_if_gz(mutate(zipped), "mutated", 1 << 16), labels, "mutated"));
  });
}

TEST(mutation, of_what_is_zipped) {
  const bytes images = idx_images(2, 3, 3);
  const bytes labels = idx_labels(2);
  for (std::uint32_t seed = 1; seed <= 2000; ++seed) {
    const bytes changed = mutator(seed)(images);
    EXPECT_EQ(unzip_if_gz(gz(changed), "mutated"), changed);
  }
}

}  // namespace
}  // namespace stash::data::test
