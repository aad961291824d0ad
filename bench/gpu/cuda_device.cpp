// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/cuda_check.hpp"
#include "bench/gpu/probe.hpp"

namespace stash::gpu {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string capability_of(const cudaDeviceProp& properties) {
  return std::to_string(properties.major) + "." + std::to_string(properties.minor);
}

/// Empty if kernels of this program can run on the device: contexts are made without any.
std::string why_no_kernels() {
  const cudaError_t found = find_probe();
  if (found == cudaSuccess) return {};
  (void)cudaGetLastError();  // else the next launch would report it again
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return std::string("the kernels cannot run on the CUDA device: built for " STASH_CUDA_BUILT_FOR " (") +
         cudaGetErrorName(found) + ": " + cudaGetErrorString(found) +
         "), the device has compute capability " + capability_of(properties);
}

}  // namespace

std::string why_no_device() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(result);
  if (count == 0) return "no CUDA device: the driver lists none";
  // Only now is a context made, which can fail as well.
  const cudaError_t usable = cudaFree(nullptr);
  if (usable != cudaSuccess)
    return std::string("the CUDA device cannot be used: ") + cudaGetErrorString(usable);
  return why_no_kernels();
}

bool is_emulated() {
  return false;
}

device_facts facts() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  std::size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  device_facts f;
  f.name = properties.name;
  f.compute_capability = capability_of(properties);
  f.built_for = STASH_CUDA_BUILT_FOR;
  f.driver = version_text(driver);
  f.runtime = version_text(runtime);
  f.memory_bytes = total;
  f.free_bytes = available;
  f.l2_bytes = static_cast<std::uint64_t>(properties.l2CacheSize);
  f.multiprocessors = properties.multiProcessorCount;
  f.ecc = properties.ECCEnabled != 0;
  return f;
}

memory::memory(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  check(cudaMalloc(&data, bytes), "cudaMalloc");
  data_.reset(data);
}

// Errors of a release are those of earlier work, which the next checked call reports.
void memory::release::operator()(void* data) const noexcept {
  (void)cudaFree(data);
}

pinned::pinned(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes, cudaHostAllocMapped), "cudaHostAlloc");
  data_.reset(data);
}

void pinned::release::operator()(void* data) const noexcept {
  (void)cudaFreeHost(data);
}

stream::stream() {
  cudaStream_t made = nullptr;
  check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  handle_.reset(made);
}

void stream::wait() const {
  check(cudaStreamSynchronize(cuda_stream(handle())), "cudaStreamSynchronize");
}

void stream::release::operator()(void* handle) const noexcept {
  (void)cudaStreamDestroy(cuda_stream(handle));
}

void wait_for_device() {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void upload(void* to_device, const void* from_host, std::size_t bytes) {
  wait_for_device();
  if (bytes == 0) return;
  check(cudaMemcpy(to_device, from_host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
  // A copy from pageable memory may return before its last part has arrived.
  wait_for_device();
}

void download(void* to_host, const void* from_device, std::size_t bytes) {
  wait_for_device();
  if (bytes == 0) return;
  check(cudaMemcpy(to_host, from_device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
}

namespace {

cudaMemPool_t default_pool() {
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
  return pool;
}

std::uint64_t of_pool(cudaMemPoolAttr attribute) {
  std::uint64_t value = 0;
  check(cudaMemPoolGetAttribute(default_pool(), attribute, &value), "cudaMemPoolGetAttribute");
  return value;
}

}  // namespace

pool_watch::pool_watch() {
  wait_for_device();
  check(cudaMemPoolTrimTo(default_pool(), 0), "cudaMemPoolTrimTo");
  for (const cudaMemPoolAttr most : {cudaMemPoolAttrReservedMemHigh, cudaMemPoolAttrUsedMemHigh}) {
    std::uint64_t zero = 0;
    check(cudaMemPoolSetAttribute(default_pool(), most, &zero), "cudaMemPoolSetAttribute");
  }
  before_ = of_pool(cudaMemPoolAttrReservedMemCurrent);
  used_before_ = of_pool(cudaMemPoolAttrUsedMemCurrent);
}

std::uint64_t pool_watch::most_bytes() const {
  const std::uint64_t most = of_pool(cudaMemPoolAttrReservedMemHigh);
  return most > before_ ? most - before_ : 0;
}

std::uint64_t pool_watch::most_used_bytes() const {
  const std::uint64_t most = of_pool(cudaMemPoolAttrUsedMemHigh);
  return most > used_before_ ? most - used_before_ : 0;
}

void fill(void* device, std::uint8_t value, std::size_t bytes, void* stream) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(device, value, bytes, cuda_stream(stream)), "cudaMemsetAsync");
}

void copy_on_device(void* to, const void* from, std::size_t bytes, void* stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_stream(stream)),
        "cudaMemcpyAsync on the device");
}

struct graph::recorded {
  recorded() = default;
  recorded(const recorded&) = delete;
  recorded& operator=(const recorded&) = delete;
  ~recorded() {
    if (executable != nullptr) (void)cudaGraphExecDestroy(executable);
    if (captured != nullptr) (void)cudaGraphDestroy(captured);
  }
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaStream_t stream = nullptr;
};

graph::graph(const stream& in, const std::function<void()>& enqueue)
    : recorded_(std::make_shared<recorded>()) {
  recorded_->stream = cuda_stream(in.handle());
  check(cudaStreamBeginCapture(recorded_->stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  try {
    enqueue();
  } catch (...) {
    // The stream must leave its recording state; the exception says what went wrong.
    (void)cudaStreamEndCapture(recorded_->stream, &recorded_->captured);
    (void)cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(recorded_->stream, &recorded_->captured), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&recorded_->executable, recorded_->captured, 0), "cudaGraphInstantiate");
}

void graph::launch() {
  launch_in(recorded_->stream);
}

void graph::launch_in(void* stream) {
  check(cudaGraphLaunch(recorded_->executable, cuda_stream(stream)), "cudaGraphLaunch");
}

struct stopwatch::marks {
  marks() = default;
  marks(const marks&) = delete;
  marks& operator=(const marks&) = delete;
  ~marks() {
    if (begin != nullptr) (void)cudaEventDestroy(begin);
    if (end != nullptr) (void)cudaEventDestroy(end);
  }
  cudaEvent_t begin = nullptr, end = nullptr;
};

stopwatch::stopwatch() : marks_(std::make_shared<marks>()) {
  check(cudaEventCreate(&marks_->begin), "cudaEventCreate");
  check(cudaEventCreate(&marks_->end), "cudaEventCreate");
}

void stopwatch::start(void* stream) {
  check(cudaEventRecord(marks_->begin, cuda_stream(stream)), "cudaEventRecord");
}

void stopwatch::stop(void* stream) {
  check(cudaEventRecord(marks_->end, cuda_stream(stream)), "cudaEventRecord");
}

double stopwatch::seconds() const {
  check(cudaEventSynchronize(marks_->end), "cudaEventSynchronize");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, marks_->begin, marks_->end), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace stash::gpu
