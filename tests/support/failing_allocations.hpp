// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Runs a call once for every allocation that it makes, with that allocation failing. A program that includes
/// this also compiles failing_allocations.cpp, which replaces the global operator new.

#include <gtest/gtest.h>

#include <cstdint>
#include <new>
#include <type_traits>

#include "stash/error.hpp"
#include "support/test_depth.hpp"

namespace stash_test {

/// While it lives, the `failing`-th call of operator new in this thread, from 0, throws std::bad_alloc, and
/// so do those after it up to `count` in all.
class failing_allocation {
 public:
  explicit failing_allocation(std::int64_t failing, std::int64_t count = 1);
  ~failing_allocation();
  failing_allocation(const failing_allocation&) = delete;
  failing_allocation& operator=(const failing_allocation&) = delete;

  bool failed() const;
};

/// Blocks of operator new that are alive, over all threads.
std::int64_t live_blocks();

/// Calls of operator new in this thread so far.
std::int64_t allocations();

/// How many allocations `call()` asks for.
template <class Call>
std::int64_t allocations_in(const Call& call) {
  const std::int64_t before = allocations();
  call();
  return allocations() - before;
}

/// Whether a call whose failure was reported may keep blocks: a library that the caller must not destroy
/// then.
enum class left_blocks { none, some };

/// Calls `call` with its first allocation failing, then with its second, until none is left to fail. Each run
/// must either report that there is no memory (std::bad_alloc or error(out_of_memory)), and then
/// `unchanged()` is called and, if it returns a bool, must be true; or succeed all the same (a sort works
/// without its buffer, too). In both cases no block more than before may be alive, but for what `left`
/// allows: `call` checks its result and gives it back. Returns the number of allocations whose failure was
/// reported. Under a sanitizer, which makes calls slow, and where tests try a part of their cases, `stride`
/// may be used: every stride-th allocation then fails.
template <class Call, class Unchanged>
std::int64_t fail_every_allocation(const Call& call, const Unchanged& unchanged, std::int64_t stride = 1,
                                   left_blocks left = left_blocks::none) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (!only_part()) stride = 1;
#endif
  std::int64_t reports = 0;
  for (std::int64_t n = 0;; n += stride) {
    const std::int64_t before = live_blocks();
    bool failed = false, reported = false;
    {
      const failing_allocation failing(n);
      try {
        call();
      } catch (const std::bad_alloc&) {
        reported = true;
      } catch (const stash::error& e) {
        reported = e.code() == stash::errc::out_of_memory;
        EXPECT_TRUE(reported) << "allocation " << n << ": " << e.what();
      }
      failed = failing.failed();
    }
    if (!failed) {
      EXPECT_FALSE(reported) << "out of memory although nothing failed";
      return reports;
    }
    if (!reported || left == left_blocks::none) {
      EXPECT_EQ(live_blocks(), before) << "allocation " << n;
    }
    if (reported) {
      ++reports;
      if constexpr (std::is_same_v<decltype(unchanged()), bool>) {
        EXPECT_TRUE(unchanged()) << "allocation " << n << " failed: something has changed";
      } else {
        unchanged();
      }
    }
    if (::testing::Test::HasFailure()) return reports;
  }
}

template <class Call>
std::int64_t fail_every_allocation(const Call& call, std::int64_t stride = 1) {
  return fail_every_allocation(
      call, [] {}, stride);
}

}  // namespace stash_test
