// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/measure.hpp"

#include <chrono>

#include "stash/error.hpp"

namespace stash::gpu {
namespace {

constexpr int warm_ups = 2;

/// Larger than the cache: what was in it is gone after as many bytes were written or read.
std::size_t flush_bytes() {
  return static_cast<std::size_t>(2 * facts().l2_bytes);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

row not_run(const line& l, const std::string& why) {
  row r;
  r.name = l.name();
  r.why_not_run = why;
  return r;
}

}  // namespace

measurer::measurer(const effort& e)
    : effort_(e), written_(flush_bytes()), read_(flush_bytes()), never_(sizeof(std::uint32_t)) {
  // Memory that was never written may be read without going through the cache.
  fill(read_.data(), 0, read_.size(), stream_.handle());
  stream_.wait();
}

void measurer::need_copy_buffers(std::uint64_t bytes) {
  if (from_ != nullptr && from_->size() >= bytes) return;
  from_.reset();
  to_.reset();
  from_ = std::make_unique<memory>(static_cast<std::size_t>(bytes));
  to_ = std::make_unique<memory>(static_cast<std::size_t>(bytes));
  // Memory that was never written may be read faster than memory that was.
  fill(from_->data(), 1, from_->size(), stream_.handle());
  fill(to_->data(), 2, to_->size(), stream_.handle());
  stream_.wait();
}

void measurer::flush() {
  fill(written_.data(), ++pattern_, written_.size(), stream_.handle());
  // The cache is full of lines to be written back now, which would take their time from whatever is timed
  // next. Reading pushes them out and leaves nothing to write.
  read_by_kernel(read_.data(), read_.size(), never_.data(), stream_.handle());
}

double measurer::time(const prepared_case& work) {
  flush();
  work.before(stream_.handle());
  watch_.start(stream_.handle());
  work.run(stream_.handle());
  watch_.stop(stream_.handle());
  return watch_.seconds();
}

double measurer::time_copy(std::uint64_t bytes, bool by_driver) {
  const auto size = static_cast<std::size_t>(bytes);
  return time({[](void*) {},
               [&](void* stream) {
                 if (by_driver) {
                   copy_on_device(to_->data(), from_->data(), size, stream);
                 } else {
                   copy_by_kernel(to_->data(), from_->data(), size, stream);
                 }
               },
               [] {}});
}

row measurer::timed(const line& l, const prepared_case& work) {
  // A copy reads and writes each of its bytes; both yardsticks move whole vectors of 16.
  const std::uint64_t copied = (work.moved_bytes / 2 + 15) / 16 * 16;
  const bool with_copies = l.what.has_copies;
  if (with_copies) need_copy_buffers(copied);
  std::vector<double> own, driver, kernel;
  const double begin = now();
  for (int k = -warm_ups; k < effort_.most; ++k) {
    if (k >= effort_.least && now() - begin > effort_.seconds) break;
    const double times[] = {time(work), with_copies ? time_copy(copied, true) : 0,
                            with_copies ? time_copy(copied, false) : 0};
    if (k < 0) continue;
    own.push_back(times[0]);
    driver.push_back(times[1]);
    kernel.push_back(times[2]);
  }
  work.verify();
  row r;
  r.name = l.name();
  r.dense_bytes = work.dense_bytes;
  r.moved_bytes = work.moved_bytes;
  r.encoded_bytes = work.encoded_bytes;
  r.time = sample_of(own);
  if (with_copies) {
    r.driver_copy = sample_of(driver);
    r.kernel_copy = sample_of(kernel);
  }
  return r;
}

row measurer::measure(const line& l, map_source& maps) {
  try {
    return timed(l, l.what.prepare(l.form, maps));
  } catch (const failure& problem) {
    wait_for_device();  // throws if it was more than, say, too little memory
    return not_run(l, problem.what());
  } catch (const error& problem) {
    wait_for_device();
    return not_run(l, problem.what());
  }
}

}  // namespace stash::gpu
