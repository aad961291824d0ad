// SPDX-License-Identifier: Apache-2.0
// Kernels without an encoding and type of their own, on random tensors and under every schedule: the export
// of csr, dropout and the activations give what the CPU gives. STASH_RANDOM_TENSORS sets how many are tried.

#include <algorithm>

#include "simt/kernel_tests.hpp"
#include "stash/dropout.hpp"
#include "stash/relu.hpp"

namespace stash {
namespace {

using namespace test;

/// So many for each that a pair of encoding and type gets, but one at least.
int share_of_tensors(int numerator, int denominator) {
  return std::max(1, tensors_per_pair() * numerator / denominator);
}

TEST(device_csr_export, is_the_one_of_the_cpu) {
  for (const scheduled_run& run : scheduled_runs(share_of_tensors(5, 3))) {
    simt::set_schedule(run.schedule);
    SCOPED_TRACE(text_of(run));
    const auto k = static_cast<std::uint32_t>(run.tensor);
    generator random(k);
    const dtype type = static_cast<dtype>(k % 3);
    const encoding e = parse_encoding(k % 2 == 0 ? "csr" : "csr_fp8");
    const std::int64_t n = random.size() + (k % 5 == 0 ? 20000 : 0);
    const tensor t = random.make(type, n);
    const reference::encoded encoded = reference::encode(e, t);
    // Wherever the tiles lie.
    const std::size_t fixed = bytes_before_payloads({to_string(e), type}, n);
    const std::size_t payloads = encoded.bytes.size() - fixed;
    buffer stored(fixed + random.below(payloads + 1));
    regions overflow(payloads, random);
    encode_report report{};
    if (n > 0) {
      placed in(type, n, n, 0, 0);
      in.put(t);
      encode(e, in.view(type), {stored.data(), stored.size(), overflow.view(), &report}, {}, {});
    }
    if (report.status != status_ok) continue;
    const const_encoded_view input{stored.data(), stored.size(), overflow.view(), &report};
    ASSERT_NO_FATAL_FAILURE(expect_export_of_cpu(e, input, type, n, encoded.nonzeros));
    if (encoded.nonzeros == 0) continue;

    // Damaged bytes stay inside the arrays.
    for (int changes = 0; changes < 8; ++changes)
      stored.data()[random.below(stored.size())] = static_cast<std::uint8_t>(random.below(256));
    const auto rows = static_cast<std::size_t>((n + csr_row_elements - 1) / csr_row_elements);
    exported_csr damaged(type, rows, encoded.nonzeros);
    csr_export32({e, damaged.view(encoded.nonzeros).type, {n}, input}, damaged.view(encoded.nonzeros),
                 device);
  }
  simt::set_schedule({});
}

TEST(device_dropout, is_the_one_of_the_cpu) {
  for (const scheduled_run& run : scheduled_runs(share_of_tensors(3, 2))) {
    simt::set_schedule(run.schedule);
    SCOPED_TRACE(text_of(run));
    const auto k = static_cast<std::uint32_t>(run.tensor);
    generator random(k);
    const auto type = static_cast<dtype>(k % 3);
    const std::int64_t n = random.size();
    const std::int64_t inner = divisor(n, random);
    const std::int64_t gap = k % 4 == 0 ? 3 : 0;
    placed x(type, n, inner, gap, 0), host_y(type, n, inner, 0, 0), device_y(type, n, inner, 0, 0);
    x.put(random.make(type, n));
    const dropout_key key{0x0123456789abcdefU + k, 0x0000000200000007U, k};
    const float probability = static_cast<float>(k % 10) / 10;
    const std::size_t bytes = encoded_bytes_bound(parse_encoding("sign_mask"), type, n);
    buffer host_mask(bytes), device_mask(bytes);
    encode_report host_report{}, device_report{};
    dropout_forward(x.view(type), host_y.view(type), {host_mask.data(), bytes, nullptr, &host_report},
                    probability, key, {});
    dropout_forward(on_device(x.view(type)), on_device(device_y.view(type)),
                    {device_mask.data(), bytes, nullptr, &device_report}, probability, key, device);
    ASSERT_EQ(device_y.take(type, n), host_y.take(type, n));
    ASSERT_EQ(std::memcmp(device_mask.data(), host_mask.data(), bytes), 0);
    ASSERT_EQ(std::memcmp(&device_report, &host_report, sizeof host_report), 0);
    for (const bool from_key : {false, true}) {
      placed host_dx(type, n, inner, 0, 0), device_dx(type, n, inner, 0, 0);
      const const_encoded_view mask{host_mask.data(), bytes, nullptr, &host_report};
      if (from_key) {
        dropout_backward(x.view(type), host_dx.view(type), probability, key, {});
        dropout_backward(on_device(x.view(type)), on_device(device_dx.view(type)), probability, key, device);
      } else {
        dropout_backward(x.view(type),
                         {{.kind = encoding_kind::sign_mask}, x.view(type).type, x.view(type).dims, mask},
                         host_dx.view(type), probability, {});
        dropout_backward(on_device(x.view(type)),
                         {{.kind = encoding_kind::sign_mask},
                          on_device(x.view(type)).type,
                          on_device(x.view(type)).dims,
                          mask},
                         on_device(device_dx.view(type)), probability, device);
      }
      ASSERT_EQ(device_dx.take(type, n), host_dx.take(type, n));
    }
  }
  simt::set_schedule({});
}

TEST(device_activations, are_those_of_the_cpu) {
  for (const scheduled_run& run : scheduled_runs(share_of_tensors(3, 2))) {
    simt::set_schedule(run.schedule);
    SCOPED_TRACE(text_of(run));
    const auto k = static_cast<std::uint32_t>(run.tensor);
    generator random(k + 900);
    const auto type = static_cast<dtype>(k % 3);
    const std::int64_t n = random.size();
    const std::int64_t inner = divisor(n, random);
    const std::int64_t gap = k % 4 == 0 ? 5 : 0;
    placed x(type, n, inner, gap, 0), host_y(type, n, inner, 0, 0), device_y(type, n, inner, 0, 0);
    x.put(random.make(type, n));
    const auto rule = static_cast<framework_rule>(random.below(2));
    const std::size_t bytes = encoded_bytes_bound(parse_encoding("sign_mask"), type, n);
    buffer host_mask(bytes), device_mask(bytes);
    encode_report host_report{}, device_report{};
    const auto compare = [&](const auto& layer) {
      for (const bool masked : {true, false}) {
        layer(x.view(type), host_y.view(type),
              encoded_view{masked ? host_mask.data() : nullptr, bytes, nullptr, &host_report},
              execution_context{});
        layer(on_device(x.view(type)), on_device(device_y.view(type)),
              encoded_view{masked ? device_mask.data() : nullptr, bytes, nullptr, &device_report}, device);
        ASSERT_EQ(device_y.take(type, n), host_y.take(type, n));
        ASSERT_TRUE(device_mask.guard_is_whole());
        ASSERT_EQ(std::memcmp(device_mask.data(), host_mask.data(), bytes), 0);
        ASSERT_EQ(std::memcmp(&device_report, &host_report, sizeof host_report), 0);
      }
    };
    compare([&](const tensor_view& in, const tensor_view& out, const encoded_view& mask,
                const execution_context& c) { relu_forward(in, out, mask, rule, c); });
    compare([&](const tensor_view& in, const tensor_view& out, const encoded_view& mask,
                const execution_context& c) { leaky_relu_forward(in, out, mask, 0.01F, c); });
    compare([&](const tensor_view& in, const tensor_view& out, const encoded_view& mask,
                const execution_context& c) { clip_forward(in, out, mask, -0.5F, 6.0F, rule, c); });
    const auto gradients = [&](const auto& layer) {
      layer(host_y.view(type), x.view(type), host_y.view(type), execution_context{});
      layer(on_device(device_y.view(type)), on_device(x.view(type)), on_device(device_y.view(type)), device);
      ASSERT_EQ(device_y.take(type, n), host_y.take(type, n));
    };
    gradients([&](const tensor_view& dy, const tensor_view& y, const tensor_view& dx,
                  const execution_context& c) { relu_backward(dy, y, dx, rule, c); });
    gradients([&](const tensor_view& dy, const tensor_view& y, const tensor_view& dx,
                  const execution_context& c) { leaky_relu_backward(dy, y, dx, -0.3F, c); });
    gradients([&](const tensor_view& dy, const tensor_view& y, const tensor_view& dx,
                  const execution_context& c) { clip_backward(dy, y, dx, 0.0F, 2.0F, rule, c); });
  }
  simt::set_schedule({});
}

}  // namespace
}  // namespace stash
