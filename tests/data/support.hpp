// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Hand-made files and the check that an error is the one that was expected.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "stash/error.hpp"

namespace stash::data::test {

using bytes = std::vector<std::uint8_t>;

/// A u32 of an IDX header, big-endian.
void append_u32(bytes& to, std::uint32_t value);

/// IDX files. Pixels are their own index modulo 251, labels their own index modulo 10.
bytes idx_images(std::uint32_t count, std::uint32_t height, std::uint32_t width);
bytes idx_labels(std::uint32_t count);

/// CIFAR-10 records; record i has label (first + i) % 10, and pixel p of plane c is (p * 3 + c * 7 + i) %
/// 256.
bytes cifar_records(std::size_t count, std::size_t first = 0);

/// One gz member.
bytes gz(const bytes& content);

/// Expects error(code) whose message contains `fragment`.
void expect_error(errc code, const std::string& fragment, const std::function<void()>& call);

/// A folder of its own that is removed at the end.
class temporary_folder {
 public:
  temporary_folder();
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder();
  std::string path(const std::string& name = "") const;
  /// Writes a file (its parent folders too) and returns its path.
  std::string write(const std::string& name, const bytes& content) const;

 private:
  std::string path_;
};

}  // namespace stash::data::test
