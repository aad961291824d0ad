// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Lets no thread be made.

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>

namespace stash_test {

/// While it lives, threads that are made with default attributes, as std::thread's are, ask for a stack that
/// no address space can hold.
class no_new_threads {
 public:
  no_new_threads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge;
    EXPECT_EQ(pthread_attr_init(&huge), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 60), 0);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
  }
  ~no_new_threads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }
  no_new_threads(const no_new_threads&) = delete;
  no_new_threads& operator=(const no_new_threads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace stash_test
