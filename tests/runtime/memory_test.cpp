// SPDX-License-Identifier: Apache-2.0
#include "stash/memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include "stash/error.hpp"

// Sanitizers, if there are any, answer to sizes that cannot be as an allocator does: with none. Their
// run-time libraries look for these names.
extern "C" {
[[gnu::visibility("default")]] const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
[[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}
}

namespace stash {
namespace {

errc code_of(const auto& call) {
  try {
    call();
  } catch (const error& e) {
    return e.code();
  }
  return errc::ok;
}

/// Hands out blocks of malloc and keeps a book of them.
struct book {
  struct entry {
    std::size_t bytes, alignment;
    void* stream;
  };
  std::vector<entry> taken, freed;
  std::ptrdiff_t skew = 0;  ///< added to every address
  bool empty = false;

  static void* allocate(void* user, std::size_t bytes, std::size_t alignment, void* stream) {
    auto& self = *static_cast<book*>(user);
    self.taken.push_back({bytes, alignment, stream});
    if (self.empty) return nullptr;
    return static_cast<char*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)) + self.skew;
  }
  static void deallocate(void* user, void* data, std::size_t bytes, std::size_t alignment, void* stream) {
    auto& self = *static_cast<book*>(user);
    self.freed.push_back({bytes, alignment, stream});
    std::free(static_cast<char*>(data) - self.skew);
  }
  memory_callbacks callbacks() { return {this, &allocate, &deallocate, memory_space::pinned_host}; }
};

TEST(memory, host_memory_is_aligned_and_never_null) {
  for (const std::size_t alignment : {1U, 16U, 64U, 4096U}) {
    for (const std::size_t bytes : {0U, 1U, 63U, 64U, 100'000U}) {
      void* data = host_memory().allocate(bytes, alignment);
      ASSERT_NE(data, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % alignment, 0U);
      host_memory().deallocate(data, bytes, alignment);
    }
  }
  EXPECT_EQ(host_memory().space(), memory_space::host);
}

TEST(memory, wrong_alignments_are_refused) {
  for (const std::size_t alignment : {0U, 3U, 24U}) {
    EXPECT_EQ(code_of([&] { host_memory().allocate(16, alignment); }), errc::invalid_argument) << alignment;
  }
}

TEST(memory, what_does_not_exist_is_out_of_memory) {
  EXPECT_EQ(code_of([] { host_memory().allocate(SIZE_MAX / 2, 64); }), errc::out_of_memory);
  try {
    host_memory().allocate(SIZE_MAX / 2, 64);
  } catch (const error& e) {
    EXPECT_STREQ(
        e.what(),
        "memory_resource::allocate: bytes: expected memory for 9223372036854775807 bytes aligned to 64, "
        "got none");
  }
}

TEST(memory, sizes_that_cannot_be_are_refused_before_anybody_rounds_them_up) {
  constexpr std::size_t most = PTRDIFF_MAX;
  book b;
  b.empty = true;
  callback_memory callbacks(b.callbacks());
  pmr_memory standard(*std::pmr::new_delete_resource());
  counting_memory counting(host_memory());
  for (memory_resource* memory :
       {&host_memory(), static_cast<memory_resource*>(&standard), static_cast<memory_resource*>(&counting),
        static_cast<memory_resource*>(&callbacks)}) {
    for (const std::size_t bytes :
         {SIZE_MAX, SIZE_MAX - 10, SIZE_MAX - 63, SIZE_MAX - 64, most + 1, most, most - 63}) {
      EXPECT_EQ(code_of([&] { memory->allocate(bytes, 64); }), errc::out_of_memory) << bytes;
    }
    EXPECT_EQ(code_of([&] { memory->allocate(1, most + 1); }), errc::out_of_memory);
  }
  EXPECT_TRUE(b.taken.empty()) << "the caller's allocator was asked";
  EXPECT_EQ(counting.bytes_in_use(), 0U);
  EXPECT_EQ(code_of([&] { callbacks.allocate(most - 64, 64); }), errc::out_of_memory);
  EXPECT_EQ(b.taken.size(), 1U);
}

TEST(memory, callbacks_get_what_was_asked_for) {
  book b;
  callback_memory memory(b.callbacks());
  EXPECT_EQ(memory.space(), memory_space::pinned_host);
  int stream = 0;
  void* data = memory.allocate(100, 32, &stream);
  memory.deallocate(data, 100, 32, &stream);
  ASSERT_EQ(b.taken.size(), 1U);
  ASSERT_EQ(b.freed.size(), 1U);
  for (const book::entry& e : {b.taken[0], b.freed[0]}) {
    EXPECT_EQ(e.bytes, 100U);
    EXPECT_EQ(e.alignment, 32U);
    EXPECT_EQ(e.stream, &stream);
  }
}

TEST(memory, callbacks_that_break_the_contract_are_found_out) {
  book b;
  b.empty = true;
  callback_memory memory(b.callbacks());
  EXPECT_EQ(code_of([&] { memory.allocate(8, 8); }), errc::out_of_memory);
  EXPECT_TRUE(b.freed.empty());

  b.empty = false;
  b.skew = 4;
  EXPECT_EQ(code_of([&] { memory.allocate(8, 64); }), errc::out_of_memory);
  EXPECT_EQ(b.freed.size(), 1U) << "the block must be given back";

  memory_callbacks none = b.callbacks();
  none.allocate = nullptr;
  EXPECT_EQ(code_of([&] { callback_memory m(none); }), errc::invalid_argument);
  none = b.callbacks();
  none.deallocate = nullptr;
  EXPECT_EQ(code_of([&] { callback_memory m(none); }), errc::invalid_argument);
  for (const int space : {3, 9, 255}) {
    none = b.callbacks();
    none.space = static_cast<memory_space>(space);
    EXPECT_EQ(code_of([&] { callback_memory m(none); }), errc::invalid_argument) << space;
  }
}

TEST(memory, of_a_device_that_is_not_there) {
  for (memory_resource* memory : {&device_memory(), &pinned_memory()}) {
    try {
      memory->allocate(16, 64);
      ADD_FAILURE();
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::unsupported);
      const std::string name = memory == &device_memory() ? "device_memory" : "pinned_memory";
      EXPECT_EQ(e.what(), name + ": device: expected a build with CUDA, got one without");
    }
  }
}

TEST(memory, standard_resources_serve) {
  std::vector<std::byte> buffer(4096);
  std::pmr::monotonic_buffer_resource upstream(buffer.data(), buffer.size(),
                                               std::pmr::null_memory_resource());
  pmr_memory memory(upstream);
  void* data = memory.allocate(1000, 64);
  EXPECT_GE(data, static_cast<void*>(buffer.data()));
  EXPECT_LT(data, static_cast<void*>(buffer.data() + buffer.size()));
  memory.deallocate(data, 1000, 64);
  EXPECT_EQ(code_of([&] { memory.allocate(4000, 64); }), errc::out_of_memory);
}

TEST(memory, counting_counts_and_limits) {
  counting_memory memory(host_memory(), 1000);
  void* a = memory.allocate(600, 16);
  EXPECT_EQ(code_of([&] { memory.allocate(401, 16); }), errc::out_of_memory);
  EXPECT_EQ(code_of([&] { memory.allocate(SIZE_MAX, 16); }), errc::out_of_memory);
  void* b = memory.allocate(400, 16);
  EXPECT_EQ(memory.bytes_in_use(), 1000U);
  EXPECT_EQ(memory.blocks_in_use(), 2U);
  memory.deallocate(a, 600, 16);
  EXPECT_EQ(memory.bytes_in_use(), 400U);
  EXPECT_EQ(memory.peak_bytes(), 1000U);
  memory.deallocate(b, 400, 16);
  EXPECT_EQ(memory.bytes_in_use(), 0U);
  EXPECT_EQ(memory.blocks_in_use(), 0U);
}

TEST(memory, counting_survives_an_upstream_that_fails) {
  book b;
  b.empty = true;
  callback_memory upstream(b.callbacks());
  counting_memory memory(upstream);
  EXPECT_EQ(memory.space(), memory_space::pinned_host);
  EXPECT_EQ(code_of([&] { memory.allocate(64, 16); }), errc::out_of_memory);
  EXPECT_EQ(memory.bytes_in_use(), 0U);
  EXPECT_EQ(memory.blocks_in_use(), 0U);
  EXPECT_EQ(memory.peak_bytes(), 0U);
}

TEST(memory_threads, counting_is_exact_from_many_threads) {
  counting_memory memory(host_memory(), 4 * 64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i)
        memory.deallocate(memory.allocate(64, 64), 64, 64);
    });
  }
  for (std::thread& t : threads)
    t.join();
  EXPECT_EQ(memory.bytes_in_use(), 0U);
  EXPECT_LE(memory.peak_bytes(), 256U);
}

}  // namespace
}  // namespace stash
