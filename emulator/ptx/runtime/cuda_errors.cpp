// SPDX-License-Identifier: Apache-2.0
// Errors of the CUDA runtime: the last one of each thread, their names and what they mean.

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "ptx/runtime/cuda_runtime.hpp"

namespace stash::ptx {
namespace {

struct named_error {
  cudaError_t code;
  const char *name, *text;
};

/// Those that are given here.
constexpr named_error named_errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorMissingConfiguration, "cudaErrorMissingConfiguration",
     "a kernel was launched without a configuration"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidKernelImage, "cudaErrorInvalidKernelImage", "device kernel image is invalid"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidPtx, "cudaErrorInvalidPtx", "the PTX machine does not understand a kernel's PTX"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

thread_local cudaError_t last_error = cudaSuccess;

/// What the lost device died of; empty while it is well. Never destroyed: texts of errors lie in it.
std::string& cause_of_loss() {
  static auto& text = *new std::string;
  return text;
}

const named_error* find(cudaError_t code) {
  const auto* const at = std::find_if(std::begin(named_errors), std::end(named_errors),
                                      [&](const named_error& e) { return e.code == code; });
  return at == std::end(named_errors) ? nullptr : at;
}

}  // namespace

std::recursive_mutex& runtime_lock() {
  static auto& made = *new std::recursive_mutex;
  return made;
}

cudaError_t remembered(cudaError_t result) {
  if (result != cudaSuccess) last_error = result;
  return result;
}

cudaError_t lose_device(const std::string& why) {
  std::fprintf(stderr, "PTX machine: %s\n", why.c_str());
  const std::lock_guard lock(runtime_lock());
  cause_of_loss() = why;
  return cudaErrorLaunchFailure;
}

bool device_is_lost() {
  const std::lock_guard lock(runtime_lock());
  return !cause_of_loss().empty();
}

extern "C" {

cudaError_t cudaPeekAtLastError() {
  return device_is_lost() ? cudaErrorLaunchFailure : last_error;
}
cudaError_t cudaGetLastError() {
  const cudaError_t last = std::exchange(last_error, cudaSuccess);
  return device_is_lost() ? cudaErrorLaunchFailure : last;
}
const char* cudaGetErrorName(cudaError_t code) {
  const named_error* const found = find(code);
  return found == nullptr ? "unrecognized error code" : found->name;
}
const char* cudaGetErrorString(cudaError_t code) {
  if (code == cudaErrorLaunchFailure && device_is_lost()) return cause_of_loss().c_str();
  const named_error* const found = find(code);
  return found == nullptr ? "unrecognized error code" : found->text;
}

}  // extern "C"

}  // namespace stash::ptx
