// SPDX-License-Identifier: Apache-2.0
// Training lives in its arena: an interposed allocator counts every byte of this program that is live on the
// heap or mapped, and no step after the first has more than a little of it in addition to what was there
// before.

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "executor/training_support.hpp"

// Sanitizers bring their own allocator.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STASH_COUNT_ALLOCATIONS 0
#else
#define STASH_COUNT_ALLOCATIONS 1
#endif

namespace {

std::atomic<std::int64_t> live{0}, most{0}, calls{0};

void count(std::int64_t bytes) noexcept {
  const std::int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (bytes <= 0) return;
  calls.fetch_add(1, std::memory_order_relaxed);
  std::int64_t seen = most.load(std::memory_order_relaxed);
  while (now > seen && !most.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

}  // namespace

#if STASH_COUNT_ALLOCATIONS
// The C library's own entry points; operator new of the C++ library ends in malloc or aligned_alloc.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

static void* counted(void* p) {
  if (p != nullptr) count(static_cast<std::int64_t>(malloc_usable_size(p)));
  return p;
}

static void uncount(void* p) {
  if (p != nullptr) count(-static_cast<std::int64_t>(malloc_usable_size(p)));
}

// For shared libraries, too; clang would hide them, g++ goes by what the system's headers say.
#pragma GCC visibility push(default)
void* malloc(std::size_t n) {
  return counted(__libc_malloc(n));
}
void* calloc(std::size_t n, std::size_t size) {
  return counted(__libc_calloc(n, size));
}
void free(void* p) {
  uncount(p);
  __libc_free(p);
}
void* realloc(void* p, std::size_t n) {
  const std::int64_t before = p == nullptr ? 0 : static_cast<std::int64_t>(malloc_usable_size(p));
  void* q = __libc_realloc(p, n);
  // Moving may hold both blocks at once; a failure leaves the old one.
  if (q != nullptr) counted(q);
  if (q != nullptr || n == 0) count(-before);
  return q;
}
void* memalign(std::size_t alignment, std::size_t n) {
  return counted(__libc_memalign(alignment, n));
}
void* aligned_alloc(std::size_t alignment, std::size_t n) {
  return memalign(alignment, n);
}
void* valloc(std::size_t n) {
  return memalign(static_cast<std::size_t>(getpagesize()), n);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t n) {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* p = memalign(alignment, n);
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}

// The C library does not come through here for its own mappings.
void* mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  const long p = syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
  if (p != -1) count(static_cast<std::int64_t>(bytes));
  return reinterpret_cast<void*>(p);
}
int munmap(void* at, std::size_t bytes) {
  const long result = syscall(SYS_munmap, at, bytes);
  if (result == 0) count(-static_cast<std::int64_t>(bytes));
  return static_cast<int>(result);
}
#pragma GCC visibility pop
}
#endif

namespace stash::executor::testing {
namespace {

using planner::policy;

constexpr std::int64_t allowed = 64 * 1024;

TEST(allocation_counter, sees_every_way_to_memory) {
  if (!STASH_COUNT_ALLOCATIONS) GTEST_SKIP() << "a sanitizer owns the allocator";
  constexpr std::size_t bytes = 100'000;
  static void* volatile escaped;  // memory that nobody sees may be left out by the compiler
  const auto grows = [](const auto& make, const auto& release) {
    const std::int64_t before = live;
    auto* p = make();
    escaped = p;
    EXPECT_NE(escaped, nullptr);
    const std::int64_t during = live;
    release(p);
    EXPECT_GE(during - before, static_cast<std::int64_t>(bytes));
    EXPECT_EQ(live, before);
  };
  grows([&] { return std::malloc(bytes); }, [](void* p) { std::free(p); });
  grows([&] { return std::calloc(bytes, 1); }, [](void* p) { std::free(p); });
  grows([&] { return std::realloc(std::malloc(10), bytes); }, [](void* p) { std::free(p); });
  grows([&] { return std::aligned_alloc(64, bytes / 64 * 64 + 64); }, [](void* p) { std::free(p); });
  grows(
      [&]() -> void* {
        void* p = nullptr;
        return posix_memalign(&p, 4096, bytes) == 0 ? p : nullptr;
      },
      [](void* p) { std::free(p); });
  grows([&] { return new char[bytes]; }, [](char* p) { delete[] p; });
  grows([&] { return ::operator new (bytes, std::align_val_t{64}); },
        [](void* p) { ::operator delete (p, std::align_val_t{64}); });
  grows([&] { return mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); },
        [&](void* p) { munmap(p, bytes); });
}

using run = std::tuple<std::string, policy, int>;

class allocation : public ::testing::TestWithParam<run> {};

TEST_P(allocation, a_step_lives_in_its_arena) {
  if (!STASH_COUNT_ALLOCATIONS) GTEST_SKIP() << "a sanitizer owns the allocator";
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) {
    GTEST_SKIP() << "without AVX2 the library's convolutions allocate workspace of their own";
  }
#else
  GTEST_SKIP() << "known for x86-64 with AVX2 only";
#endif
  const auto& [network, chosen, threads] = GetParam();
  const auto t = make_trainer(make_graph(network, 8, threads), make_options(chosen, threads));
  const planner::graph g = t->current().current_plan().network;
  std::vector<image_batch> batches;
  for (std::int64_t i = 0; i < 4; ++i)
    batches.push_back(make_batch(g, i));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::int64_t reruns = t->reruns();
    const std::int64_t before = live;
    most = before;
    const std::int64_t calls_before = calls;
    t->step(batches[i].images, batches[i].labels, {});
    const std::int64_t beyond = most - before, after = live - before;
    if (i == 0) continue;
    ASSERT_EQ(t->reruns(), reruns) << "a new plan is made with memory of its own";
    EXPECT_LE(beyond, allowed) << "step " << i << ": " << calls - calls_before << " allocations";
    EXPECT_LE(after, allowed) << "step " << i << " leaks memory";
  }
}

INSTANTIATE_TEST_SUITE_P(runs, allocation,
                         ::testing::Combine(::testing::Values("lenet", "vgg_small", "resnet20"),
                                            ::testing::Values(policy::none, policy::lossless, policy::fp8),
                                            ::testing::Values(1, 2)),
                         [](const auto& p) {
                           return std::get<0>(p.param) + "_" +
                                  std::string(planner::to_string(std::get<1>(p.param))) + "_" +
                                  std::to_string(std::get<2>(p.param)) + "_threads";
                         });

}  // namespace
}  // namespace stash::executor::testing
