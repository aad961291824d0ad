// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Memory, copies, streams and events of a CUDA device. Only nvcc compiles it; the emulator has its own.

#include "encoders/device/device_memory.hpp"

namespace stash::kernels {

class cuda_memory final : public encoders::device::memory_calls {
 public:
  void check_available(std::string_view function) const override;
  void* allocate(std::size_t bytes, void* stream) const override;
  void deallocate(void* data, void* stream) const noexcept override;
  void* allocate_pinned(std::size_t bytes) const override;
  void deallocate_pinned(void* data) const noexcept override;
  void clear(void* data, std::size_t bytes, void* stream) const override;
  void copy(void* to, const void* from, std::size_t bytes, void* stream) const override;
  void wait_for_stream(void* stream) const override;
  void* create_stream() const override;
  void destroy_stream(void* stream) const noexcept override;
  encoders::device::event record_event(void* stream) const override;
  bool reached(encoders::device::event e) const override;
  void wait_for_event(encoders::device::event e) const override;
  void wait_in_stream(void* stream, encoders::device::event e) const override;
  void destroy_event(encoders::device::event e) const noexcept override;
};

}  // namespace stash::kernels
