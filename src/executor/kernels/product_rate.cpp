// SPDX-License-Identifier: Apache-2.0
#include "executor/kernels/product_rate.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "executor/kernels/onednn.hpp"

namespace stash::executor {

double convolution_rate(int threads, double seconds) {
  using clock = std::chrono::steady_clock;
  onednn::convolution_shape s;
  s.batch = 8;
  s.in_channels = s.out_channels = 128;
  s.in_h = s.in_w = s.out_h = s.out_w = 28;
  s.kernel_h = s.kernel_w = 3;
  s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = 1;
  const onednn::thread_scope scope(threads);
  onednn::convolution product(onednn::direction::forward, s, false);
  const auto elements = static_cast<std::size_t>(s.batch * s.in_channels * s.in_h * s.in_w);
  const std::vector<float> x(elements, 0.5F);
  const std::vector<float> w(static_cast<std::size_t>(product.weights_bytes()) / sizeof(float), 0.25F);
  std::vector<float> y(elements);
  std::vector<char> scratchpad(static_cast<std::size_t>(product.scratchpad_bytes()) + 64);
  const double operations =
      2.0 * static_cast<double>(elements) * static_cast<double>(s.in_channels * s.kernel_h * s.kernel_w);
  std::vector<double> seconds_per_run;
  const auto end = clock::now() + std::chrono::duration<double>(seconds);
  // The first run pays for pages and for the library's threads.
  product.run(x.data(), w.data(), nullptr, y.data(), scratchpad.data());
  do {
    const auto begin = clock::now();
    product.run(x.data(), w.data(), nullptr, y.data(), scratchpad.data());
    seconds_per_run.push_back(std::chrono::duration<double>(clock::now() - begin).count());
  } while (seconds_per_run.size() < 3 || clock::now() < end);
  std::nth_element(seconds_per_run.begin(),
                   seconds_per_run.begin() + static_cast<std::ptrdiff_t>(seconds_per_run.size() / 2),
                   seconds_per_run.end());
  return operations / std::max(seconds_per_run[seconds_per_run.size() / 2], 1e-9);
}

}  // namespace stash::executor
