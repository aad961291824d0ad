// SPDX-License-Identifier: Apache-2.0
#include "bench/cases/tensors.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace stash::bench {
namespace {

constexpr std::align_val_t page{4096};

}  // namespace

page_buffer::page_buffer(std::size_t bytes)
    : data_(static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 1), page))), size_(bytes) {
  std::memset(data_.get(), 1, size_);
}

void page_buffer::release::operator()(std::byte* data) const noexcept {
  ::operator delete[](data, page);
}

tensor::tensor(const shape& dims) : dims_(dims), memory_(static_cast<std::size_t>(dims.elements()) * 4) {}

std::span<float> tensor::values() const noexcept {
  return {reinterpret_cast<float*>(memory_.data()), static_cast<std::size_t>(elements())};
}

encoded::encoded(const encoding& e, std::size_t bytes) : how_(e), memory_(bytes) {}

encoded::encoded(const encoding& e, const tensor& x, const execution_context& context)
    : encoded(e, encoded_bytes_exact(e, x.read(), context)) {
  encode(e, x.read(), write(), {}, context);
}

encoded_view encoded::write() noexcept {
  report_ = {};
  return {memory_.data(), memory_.size(), nullptr, &report_};
}

}  // namespace stash::bench
