// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What tests of the CUDA runtime on the PTX machine share: memory, and kernels registered as nvcc's are.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "ptx/runtime/made_fat_binary.hpp"

// What nvcc writes into programs; no header for others declares it.
extern "C" {
void** __cudaRegisterFatBinary(void* registered);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host_function, char* device_function, const char* name,
                            int thread_limit, uint3* thread, uint3* block, dim3* block_size, dim3* grid_size,
                            int* warp_size);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, CUstream_st* stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream);
cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* host_function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream);
}

/// Tests that fail name the error.
inline void PrintTo(cudaError_t error, std::ostream* out) {
  *out << cudaGetErrorName(error) << " (" << static_cast<int>(error) << ")";
}

namespace stash::ptx {

using word = std::uint32_t;

/// Errors of one test are not those of the next.
class runtime : public ::testing::Test {
 protected:
  runtime() { cudaGetLastError(); }
};

/// Memory of the device, freed at the end.
class words_of_device {
 public:
  explicit words_of_device(std::size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(data_, 0, bytes(), nullptr), cudaSuccess);
    // Streams that do not wait for the default stream use them, too.
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  words_of_device(const words_of_device&) = delete;
  words_of_device& operator=(const words_of_device&) = delete;
  ~words_of_device() { cudaFree(data_); }

  void* data() const { return data_; }
  std::size_t bytes() const { return count_ * sizeof(word); }
  /// After the work of all streams.
  std::vector<word> now() const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<word> words(count_);
    EXPECT_EQ(cudaMemcpy(words.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return words;
  }

 private:
  std::size_t count_;
  void* data_ = nullptr;
};

inline char* at(void* memory, std::ptrdiff_t offset) {
  return static_cast<char*>(memory) + offset;
}

/// A kernel of a pointer and a number, with its address in %rd1 and the number in %r1.
inline std::string kernel_text(const std::string& name, const std::string& body) {
  return ".visible .entry " + name + "(\n\t.param .u64 " + name + "_param_0,\n\t.param .u32 " + name +
         "_param_1\n)\n.maxntid 64, 1, 1\n{\n"
         "\t.reg .b32 \t%r<9>;\n\t.reg .f32 \t%f<3>;\n\t.reg .b64 \t%rd<9>;\n"
         "\t.shared .align 4 .b8 " +
         name + "_table[256];\n\tld.param.u64 \t%rd2, [" + name + "_param_0];\n\tld.param.u32 \t%r1, [" +
         name +
         "_param_1];\n"
         "\tmov.u32 \t%r3, %ctaid.x;\n\tmov.u32 \t%r4, %ntid.x;\n\tmov.u32 \t%r5, %tid.x;\n"
         "\tmad.lo.s32 \t%r6, %r3, %r4, %r5;\n\tmul.wide.u32 \t%rd3, %r6, 4;\n\tadd.s64 \t%rd1, %rd2, "
         "%rd3;\n" +
         body + "\n\tret;\n}\n";
}

/// Kernels as a program has them that nvcc built, from before main() until its end. The host knows each by
/// the address of a function; here any address will do.
class registered {
 public:
  explicit registered(std::vector<std::byte> fat_binary) : bytes_(std::move(fat_binary)) {
    registration_.data = bytes_.data();
    handle_ = __cudaRegisterFatBinary(&registration_);
  }
  registered(const registered&) = delete;
  registered& operator=(const registered&) = delete;
  ~registered() { __cudaUnregisterFatBinary(handle_); }

  void add(const char& host_function, std::string name) {
    __cudaRegisterFunction(handle_, &host_function, name.data(), name.c_str(), -1, nullptr, nullptr, nullptr,
                           nullptr, nullptr);
    __cudaRegisterFatBinaryEnd(handle_);
  }

 private:
  std::vector<std::byte> bytes_;
  fat_registration registration_;
  void** handle_;
};

constexpr char header_text[] = ".version 9.0\n.target sm_90\n.address_size 64\n\n";

inline cudaError_t launch(const char& kernel, dim3 grid, dim3 block, void* memory, word value,
                          cudaStream_t stream = nullptr, std::size_t shared_bytes = 0) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  void* arguments[] = {&memory, &value};
  return cudaLaunchKernelExC(&config, &kernel, arguments);
}

/// Whether streams do their work in the call that enqueues it.
inline bool expects_eager_streams() {
  const char* const text = std::getenv("STASH_PTX_STREAMS");
  return text != nullptr && std::string(text) == "eager";
}

/// Ends a program in which nothing but what it expected has happened. Another way out would let the fixture
/// give back what a lost device may not.
[[noreturn]] inline void end_of_program() {
  std::_Exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
}

}  // namespace stash::ptx
