// SPDX-License-Identifier: Apache-2.0
#include "bench/cases/copy.hpp"

#include <cstring>
#include <memory>

#include "bench/cases/tensors.hpp"

namespace stash::bench {
namespace {

constexpr std::int64_t chunk_bytes = 128 << 10;

struct buffers {
  explicit buffers(std::size_t bytes) : from(bytes), to(bytes) {}
  page_buffer from, to;
};

void copy_range(void* state, std::int64_t begin, std::int64_t end) {
  const auto& b = *static_cast<buffers*>(state);
  std::memcpy(b.to.data() + begin, b.from.data() + begin, static_cast<std::size_t>(end - begin));
}

}  // namespace

std::function<void()> copy_call(std::int64_t moved_bytes, const execution_context& context) {
  const std::int64_t size = moved_bytes / 2;
  return [b = std::make_shared<buffers>(static_cast<std::size_t>(size)), size, context] {
    if (context.parallel_for == nullptr) {
      copy_range(b.get(), 0, size);
    } else {
      context.parallel_for(context.user, size, chunk_bytes, copy_range, b.get());
    }
  };
}

}  // namespace stash::bench
