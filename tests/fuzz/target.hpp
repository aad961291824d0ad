// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a fuzz target defines, and what targets share. A target is one source file with these two functions;
/// it is linked with engine.cpp (libFuzzer) and with replay.cpp (its seeds and mutations of them, any
/// compiler).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

namespace stash::fuzz {

using bytes = std::vector<std::uint8_t>;

/// One execution. Whatever the input, it returns; what must not happen ends the program.
void run(std::span<const std::uint8_t> input);

/// Inputs to start from: valid ones, the same at every call.
std::vector<bytes> seeds();

/// For consequences that take much longer than what is under test: true for one of `n` inputs, chosen by
/// their bytes, when libFuzzer searches, and for every input in a replay.
bool is_examined(std::span<const std::uint8_t> input, std::uint32_t n);

/// Ends the program with a message if `holds` is false.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "property does not hold: %s\n", what);
  std::abort();
}

/// Takes an object from the front of the input; bytes that are not there are zero.
template <class T>
T take(std::span<const std::uint8_t>& input) {
  static_assert(std::has_unique_object_representations_v<T>);
  T value{};
  const std::size_t there = std::min(sizeof(T), input.size());
  std::memcpy(&value, input.data(), there);
  input = input.subspan(there);
  return value;
}

/// An input that take() reads `header` from.
template <class T>
bytes with_header(const T& header, std::span<const std::uint8_t> rest) {
  static_assert(std::has_unique_object_representations_v<T>);
  bytes input(sizeof(T) + rest.size());
  std::memcpy(input.data(), &header, sizeof(T));
  std::copy(rest.begin(), rest.end(), input.begin() + sizeof(T));
  return input;
}

/// Heap memory of exactly this many bytes, 16-byte aligned: address sanitizer sees one byte too far.
class exact_buffer {
 public:
  exact_buffer(std::size_t size, std::uint8_t fill)
      : data_(static_cast<std::uint8_t*>(::operator new(size, alignment))), size_(size) {
    std::fill_n(data_, size_, fill);
  }
  explicit exact_buffer(std::span<const std::uint8_t> content) : exact_buffer(content.size(), 0) {
    std::copy(content.begin(), content.end(), data_);
  }
  exact_buffer(const exact_buffer&) = delete;
  exact_buffer& operator=(const exact_buffer&) = delete;
  ~exact_buffer() { ::operator delete(data_, alignment); }

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool operator==(const exact_buffer& other) const {
    return size_ == other.size_ && std::equal(data_, data_ + size_, other.data_);
  }
  bool holds_only(std::uint8_t fill) const {
    return std::all_of(data_, data_ + size_, [fill](std::uint8_t byte) { return byte == fill; });
  }

 private:
  static constexpr std::align_val_t alignment{16};
  std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace stash::fuzz
