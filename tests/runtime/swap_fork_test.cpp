// SPDX-License-Identifier: Apache-2.0
// A swapper in a process that was forked from the one that made it.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "encoders/support.hpp"
#include "runtime/swap_support.hpp"
#include "stash/swap.hpp"

namespace stash {
namespace {

using stash_test::make_bytes;
using stash_test::same_bytes;

#ifdef __SANITIZE_ADDRESS__
/// Whether all threads but this one wait for something.
bool others_sleep() {
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    if (thread.path().filename() == std::to_string(gettid())) continue;
    std::ifstream file(thread.path() / "stat");
    std::string number, name, state;
    file >> number >> name >> state;
    if (state != "S") return false;
  }
  return true;
}
#endif

/// The status of a child that runs `body`, which gives it; 99 if it threw, -1 if it had to be killed.
template <class Body>
int status_of_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    int status = 99;
    try {
      status = body();
    } catch (...) {
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(swap_processes, a_forked_child_is_refused_and_does_not_wait) {
  const std::vector<std::uint8_t> bytes = make_bytes(100'000, 1);
  auto swaps = std::make_unique<swapper>(swapper_options{.chunk_bytes = 100});
  swapped out = swaps->swap_out(bytes.data(), bytes.size(), {.name = "conv1"});
  swapped back = swaps->swap_out(bytes.data(), bytes.size());
#ifdef __SANITIZE_ADDRESS__
  // A lock of the sanitizer's allocator that another thread holds at a fork is never given back in the child.
  out.wait_out();
  back.wait_out();
  while (!others_sleep())
    std::this_thread::yield();
#endif
  const int status = status_of_child([&] {
    const std::function<void()> calls[] = {[&] { out.wait_out(); },
                                           [&] { (void)out.out_ended(); },
                                           [&] { out.swap_in(); },
                                           [&] { (void)out.wait_in(); },
                                           [&] { out.leave(); },
                                           [&] { swaps->reached(1); },
                                           [&] { (void)swaps->statistics(); },
                                           [&] { (void)swaps->swap_out(bytes.data(), 8); },
                                           [&] { (void)swaps->swap_out(stashed_tensor(), {}); }};
    int call = 1;
    for (const auto& f : calls) {
      if (stash_test::code_of(f) != errc::invalid_argument) return call;
      ++call;
    }
    if (out.bytes() != bytes.size() || out.name() != "conv1") return 20;
    back = {};
    out.reset();
    swaps.reset();
    // One of its own works.
    swapper own;
    swapped there = own.swap_out(bytes.data(), bytes.size());
    return same_bytes(there.wait_in(), bytes) ? 0 : 21;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(status_of_child([&] {
              swaps.reset();  // before its handles
              return stash_test::code_of([&] { out.wait_out(); }) == errc::invalid_argument ? 0 : 1;
            }),
            0);
  out.wait_out();
  EXPECT_TRUE(same_bytes(out.wait_in(), bytes));
  EXPECT_TRUE(same_bytes(back.wait_in(), bytes));
}

}  // namespace
}  // namespace stash
