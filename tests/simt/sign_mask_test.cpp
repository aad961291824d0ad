// The kernel of sign_mask under every schedule: the bytes are those of the CPU.

#include "sign_mask.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "encoders/support.hpp"
#include "stash/encoding.hpp"

namespace stash::kernels {
namespace {

using stash_test::flavour;
using stash_test::make_values;

/// Exactly this many bytes at a 16-byte boundary, so that a sanitizer sees the first one too far.
struct exact_bytes {
  explicit exact_bytes(std::size_t size) : bytes(size) {
    if (posix_memalign(&data, 16, std::max<std::size_t>(size, 1)) != 0) throw std::bad_alloc();
    std::memset(data, 0xcd, size);
  }
  ~exact_bytes() { std::free(data); }
  exact_bytes(const exact_bytes&) = delete;
  exact_bytes& operator=(const exact_bytes&) = delete;
  void* data = nullptr;
  std::size_t bytes;
};

TEST(sign_mask_kernel, gives_the_bytes_of_the_cpu) {
  const std::int64_t block = sign_mask_tuning::block_elements;
  for (const simt::schedule& s :
       {simt::schedule{simt::order::forward, 1, 1}, simt::schedule{simt::order::reverse, 1, 1},
        simt::schedule{simt::order::random, 7, 3}}) {
    simt::set_schedule(s);
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{7}, std::int64_t{8}, std::int64_t{31},
                                     std::int64_t{33}, std::int64_t{127}, std::int64_t{128},
                                     std::int64_t{129}, block - 1, block, block + 1, 2 * block + 100}) {
      for (const framework_rule rule : {framework_rule::tensorflow, framework_rule::pytorch}) {
        const std::vector<float> x =
            make_values(count, 0.7, flavour::special, static_cast<std::uint32_t>(count));
        encoding e = parse_encoding("sign_mask");
        e.rule = rule;
        const std::size_t bytes = encoded_bytes_bound(e, dtype::f32, count);
        exact_bytes input(x.size() * 4), expected(bytes), found(bytes);
        std::memcpy(input.data, x.data(), x.size() * 4);
        encode_report report;
        encode(e, stash_test::view_of(x), {expected.data, bytes, nullptr, &report}, {}, {});

        const auto blocks = static_cast<std::uint32_t>((count + block - 1) / block);
        simt::launch({blocks}, {sign_mask_tuning::threads}, 0, [&] {
          sign_mask_encode(static_cast<const std::uint32_t*>(input.data), static_cast<std::uint64_t>(count),
                           rule == framework_rule::pytorch, static_cast<std::uint8_t*>(found.data));
        });
        ASSERT_EQ(std::memcmp(found.data, expected.data, bytes), 0) << count;
      }
    }
  }
  simt::set_schedule({});
}

}  // namespace
}  // namespace stash::kernels
