// SPDX-License-Identifier: Apache-2.0
// No call of the non-owning API on a device allocates, waits or reads back: all of them, each by itself, with
// device memory that the host cannot reach. What they compute is tested elsewhere.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "format/tensor_generator.hpp"
#include "simt/device_memory.hpp"
#include "stash/batch.hpp"
#include "stash/csr.hpp"
#include "stash/dropout.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"
#include "support/closed_memory.hpp"
#include "support/pool_forms.hpp"

namespace stash {
namespace {

using stash_test::pool_form;
using stash_test::pool_forms;
using stash_test::pool_forms_of_many_taps;

constexpr execution_context device{memory_space::device};
constexpr std::int64_t elements = 2 * 8 * 8 * 80;  // two blocks of tiles
constexpr dtype types[] = {dtype::f32, dtype::f16, dtype::bf16};

constexpr execution_context canonical_context() {
  execution_context context = device;
  context.canonical = true;
  return context;
}

class device_non_owning : public testing::TestWithParam<dtype> {
 protected:
  dtype type() const { return GetParam(); }

  /// A map of these dimensions with random values.
  tensor_view map(const shape& dims) {
    const test::tensor t = random_.make(type(), dims.elements());
    test::placed on_host(type(), dims.elements(), dims.elements(), 0, 0);
    on_host.put(t);
    const tensor_view view = empty(type(), dims);
    memory_.write(view.data, on_host.memory.data(), on_host.memory.size());
    return view;
  }
  tensor_view empty(dtype element, const shape& dims) {
    return {memory_.take(static_cast<std::size_t>(dims.elements()) * size_of(element)), element,
            memory_space::device, dims, 0};
  }
  encoded_view slot(std::size_t bytes, const overflow_arena* overflow_to = nullptr) {
    return {memory_.take(bytes), bytes, overflow_to, take<encode_report>(1)};
  }
  encoded_view slot_for(const encoding& e, std::int64_t count) {
    return slot(encoded_bytes_bound(e, type(), count));
  }
  workspace_view workspace_of(std::size_t bytes) { return {memory_.take(bytes), bytes}; }
  template <class T>
  T* take(std::size_t count) {
    return reinterpret_cast<T*>(memory_.take(count * sizeof(T)));
  }
  static const_encoded_view kept(const encoded_view& v) { return {v.data, v.bytes, v.overflow, v.report}; }
  encode_report report_of(const encoded_view& v) { return memory_.read(v.report); }
  void expect_ok(const encoded_view& v) { EXPECT_EQ(report_of(v).status, status_ok); }

  /// Makes the call and counts what else it does.
  void only_launches(const std::string& what, const std::function<void()>& call, bool any = true) {
    const simt::device_calls before = simt::calls_so_far();
    const std::int64_t host = memory_.host_allocations();
    call();
    const std::int64_t host_after = memory_.host_allocations();
    const simt::device_calls after = simt::calls_so_far();
    EXPECT_EQ(after.launches > before.launches, any) << what;
    EXPECT_EQ(after.allocations, before.allocations) << what;
    EXPECT_EQ(after.copies, before.copies) << what;
    EXPECT_EQ(after.waits, before.waits) << what;
    EXPECT_EQ(host_after, host) << what << " allocates on the host";
  }

  /// Everything that takes bytes of this encoding. `stored` has been written.
  void read_in_every_way(const std::string& name, const encoding& e, const encoded_view& stored) {
    const tensor_view dy = map({elements}), dx = empty(type(), {elements});
    const bool sign = e.kind != encoding_kind::range_mask;
    const bool lossless = e.values == value_format::source && e.kind != encoding_kind::sign_mask;
    const tensor_view back =
        empty(e.kind == encoding_kind::sign_mask || !sign ? dtype::u8 : type(), {elements});
    only_launches("decode " + name, [&] {
      decode({e, back.type, back.dims, kept(stored)}, back, {}, device);
    });
    const encoded_view copy = slot_for(e, elements);
    only_launches("canonicalise " + name, [&] {
      canonicalise({e, type(), {elements}, kept(stored)}, copy, device);
    });
    expect_ok(copy);
    if (sign) {
      only_launches("relu_backward " + name, [&] {
        relu_backward(dy, {e, dy.type, dy.dims, kept(stored)}, dx, framework_rule::pytorch, device);
      });
      only_launches("leaky_relu_backward " + name, [&] {
        leaky_relu_backward(dy, {e, dy.type, dy.dims, kept(stored)}, dx, 0.1F, device);
      });
    }
    if (!sign || lossless) {
      only_launches("clip_backward " + name, [&] {
        clip_backward(dy, {e, dy.type, dy.dims, kept(stored)}, dx, 0, 6, framework_rule::pytorch, device);
      });
    }
    if (e.kind == encoding_kind::csr) {
      const csr32_view out{take<std::uint32_t>(elements / csr_row_elements + 1),
                           take<std::uint32_t>(elements), take<std::uint8_t>(elements * size_of(type())),
                           type(), elements};
      only_launches("csr_export32 " + name, [&] {
        csr_export32({e, out.type, {elements}, kept(stored)}, out, device);
      });
    }
    expect_ok(stored);
  }

  /// Bytes next to a slot, in device memory and in memory of the host that kernels reach.
  overflow_arena arena(std::size_t bytes, std::size_t host_bytes) {
    return {take<std::uint8_t>(bytes),      bytes,      take<std::uint64_t>(1),
            take<std::uint8_t>(host_bytes), host_bytes, take<std::uint64_t>(1)};
  }

  stash_test::closed_memory memory_;
  test::generator random_{77};
};

std::string type_name(const testing::TestParamInfo<dtype>& tested) {
  return tested.param == dtype::f32 ? "f32" : tested.param == dtype::f16 ? "f16" : "bf16";
}

INSTANTIATE_TEST_SUITE_P(types, device_non_owning, testing::ValuesIn(types), type_name);

std::vector<std::string> encodings_of(dtype type) {
  std::vector<std::string> names;
  for (const test::pair_under_test& pair : test::pairs()) {
    if (pair.type == type) names.push_back(pair.name);
  }
  return names;
}

encoding named(const std::string& name) {
  encoding e = parse_encoding(name);
  e.underflow = underflow_rule::keep_nonzero;
  return e;
}

bool is_tiled(const encoding& e) {
  return e.kind == encoding_kind::bitmap || e.kind == encoding_kind::csr;
}

TEST_P(device_non_owning, encodings) {
  const tensor_view x = map({elements});
  for (const std::string& name : encodings_of(type())) {
    const encoding e = named(name);
    for (const execution_context& context : {device, canonical_context()}) {
      const encoded_view stored = slot_for(e, elements);
      const workspace_view workspace = workspace_of(workspace_bytes(e, type(), elements, context));
      only_launches("encode " + name, [&] { encode(e, x, stored, workspace, context); });
      read_in_every_way(name, e, stored);
    }
    only_launches(
        "sizes dtype_of " + name,
        [&] {
          encoded_bytes_bound(e, type(), elements);
          encoded_bytes_at_density(e, type(), elements, 0.5);
          workspace_bytes(e, type(), elements, canonical_context());
        },
        false);
  }
}

/// Slots without space for payloads, next to an arena with space for some of them.
TEST_P(device_non_owning, overflow) {
  const tensor_view x = map({elements});
  for (const std::string& name : encodings_of(type())) {
    const encoding e = named(name);
    if (!is_tiled(e)) continue;
    const std::size_t bound = encoded_bytes_bound(e, type(), elements);
    for (const execution_context& context : {device, canonical_context()}) {
      const overflow_arena overflow_to = arena(1024, bound);
      const encoded_view stored =
          slot(test::bytes_before_payloads({name, type()}, elements) + 512, &overflow_to);
      const workspace_view workspace = workspace_of(workspace_bytes(e, type(), elements, context));
      only_launches("encode into an arena " + name, [&] { encode(e, x, stored, workspace, context); });
      EXPECT_GT(report_of(stored).overflow_bytes, 0U) << name;
      EXPECT_GT(memory_.read(overflow_to.host_claimed), 0U) << name;
      read_in_every_way(name + " in an arena", e, stored);
    }
  }
}

/// All encodings twice, more than one launch has space for.
TEST_P(device_non_owning, batches) {
  for (const execution_context& context : {device, canonical_context()}) {
    const overflow_arena overflow_to = arena(1 << 19, 1 << 12);
    std::vector<encode_item> to_encode;
    std::vector<decode_item> to_decode;
    for (const std::string& name : encodings_of(type())) {
      const encoding e = named(name);
      const bool mask = e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask;
      for (const std::int64_t n : {std::int64_t{1500}, std::int64_t{9000}}) {
        const bool overflows = is_tiled(e) && n == 1500;
        const encoded_view stored =
            overflows ? slot(test::bytes_before_payloads({name, type()}, n), &overflow_to) : slot_for(e, n);
        to_encode.push_back({e, map({n}), stored});
        to_decode.push_back({{e, type(), {n}, kept(stored)}, empty(mask ? dtype::u8 : type(), {n})});
      }
    }
    std::size_t bytes = 0;
    only_launches(
        "batch_workspace_bytes", [&] { bytes = batch_workspace_bytes(to_encode, context); }, false);
    const workspace_view workspace = workspace_of(bytes);
    only_launches("encode_batch", [&] { encode_batch(to_encode, workspace, context); });
    EXPECT_GT(memory_.read(overflow_to.claimed), 0U);
    only_launches("decode_batch", [&] { decode_batch(to_decode, {}, context); });
    for (const encode_item& item : to_encode)
      expect_ok(item.output);
  }
}

TEST_P(device_non_owning, activations) {
  const auto rule = framework_rule::tensorflow;
  const tensor_view x = map({elements}), dy = map({elements}), y = empty(type(), {elements}),
                    dx = empty(type(), {elements});
  const encoded_view mask = slot_for(parse_encoding("sign_mask"), elements);
  for (const encoded_view& out : {mask, encoded_view{}}) {
    const std::string how = out.data == nullptr ? " without a mask" : " with a mask";
    only_launches("relu_forward" + how, [&] { relu_forward(x, y, out, rule, device); });
    only_launches("leaky_relu_forward" + how, [&] { leaky_relu_forward(x, y, out, 0.1F, device); });
    only_launches("clip_forward" + how, [&] { clip_forward(x, y, out, 0, 6, rule, device); });
  }
  // From masks and other stashes: read_in_every_way().
  only_launches("relu_backward", [&] { relu_backward(dy, y, dx, rule, device); });
  only_launches("leaky_relu_backward", [&] { leaky_relu_backward(dy, x, dx, 0.1F, device); });
  only_launches("clip_backward", [&] { clip_backward(dy, x, dx, 0, 6, rule, device); });
  expect_ok(mask);
}

TEST_P(device_non_owning, dropout) {
  const tensor_view x = map({elements}), y = empty(type(), {elements});
  const encoded_view mask = slot_for(parse_encoding("sign_mask"), elements);
  const dropout_key key{1, 2, 3};
  only_launches("dropout_forward with a mask", [&] { dropout_forward(x, y, mask, 0.5F, key, device); });
  only_launches("dropout_forward", [&] { dropout_forward(x, y, {}, 0.5F, key, device); });
  only_launches("dropout_backward from a mask", [&] {
    dropout_backward(x, {{.kind = encoding_kind::sign_mask}, x.type, x.dims, kept(mask)}, y, 0.5F, device);
  });
  only_launches("dropout_backward from the key", [&] { dropout_backward(x, y, 0.5F, key, device); });
  expect_ok(mask);
}

class device_non_owning_pooling : public device_non_owning {
 protected:
  /// Space for a code of each window.
  encoded_view codes_of(const pool_form& f, encoding_kind kind) {
    return slot_for({.kind = kind, .window_taps = static_cast<std::uint16_t>(f.window.taps())},
                    f.y.elements());
  }
  static constexpr framework_rule rule = framework_rule::pytorch;
};

INSTANTIATE_TEST_SUITE_P(types, device_non_owning_pooling, testing::ValuesIn(types), type_name);

TEST_P(device_non_owning_pooling, max_pool) {
  std::vector<pool_form> forms = pool_forms(), many = pool_forms_of_many_taps();
  forms.insert(forms.end(), many.begin(), many.end());
  for (const pool_form& f : forms) {
    const std::string name = std::string(", ") + f.name;
    const pool_window& w = f.window;
    const tensor_view x = map(f.x), dy = map(f.y), y = empty(type(), f.y), dx = empty(type(), f.x);
    const encoded_view index = codes_of(f, encoding_kind::window_index);
    only_launches("max_pool_forward" + name, [&] { max_pool_forward(x, y, w, {}, rule, device); });
    only_launches("max_pool_forward with index" + name,
                  [&] { max_pool_forward(x, y, w, index, rule, device); });
    only_launches("max_pool_backward from index" + name, [&] {
      max_pool_backward(dy, {window_index_of(w), dy.type, dy.dims, kept(index)}, dx, w, device);
    });
    auto* const positions = take<std::int64_t>(static_cast<std::size_t>(f.y.elements()));
    only_launches("decode_window_index" + name, [&] {
      decode_window_index({window_index_of(w), dtype::f32, f.y, kept(index)}, f.x, w, positions, device);
    });
    only_launches("encode_window_index" + name,
                  [&] { encode_window_index(positions, f.y, f.x, w, index, device); });
    only_launches("max_pool_backward from x" + name, [&] { max_pool_backward(dy, x, dx, w, rule, device); });
    expect_ok(index);
  }
}

TEST_P(device_non_owning_pooling, relu_max_pool) {
  for (const pool_form& f : pool_forms()) {
    const std::string name = std::string(", ") + f.name;
    const pool_window& w = f.window;
    const tensor_view x = map(f.x), dy = map(f.y), y = empty(type(), f.y), dx = empty(type(), f.x);
    const encoded_view index = codes_of(f, encoding_kind::window_index);
    const encoded_view code = codes_of(f, encoding_kind::relu_pool);
    for (const bool with_code : {false, true}) {
      for (const bool with_index : {false, true}) {
        only_launches("relu_max_pool_forward" + name, [&] {
          relu_max_pool_forward(x, y, w, with_code ? code : encoded_view{},
                                with_index ? index : encoded_view{}, rule, device);
        });
      }
    }
    only_launches("relu_max_pool_backward from code" + name, [&] {
      relu_max_pool_backward(dy, {relu_pool_of(w), dy.type, dy.dims, kept(code)}, dx, w, device);
    });
    only_launches("relu_max_pool_backward from index and y" + name, [&] {
      relu_max_pool_backward(dy, {window_index_of(w), dy.type, dy.dims, kept(index)}, y, dx, w, rule, device);
    });
    only_launches("relu_max_pool_backward from x" + name,
                  [&] { relu_max_pool_backward(dy, x, dx, w, rule, device); });
    for (const std::string& stash : encodings_of(type())) {
      const encoding e = named(stash);
      if (e.kind == encoding_kind::range_mask) continue;
      const encoded_view stored = slot_for(e, f.y.elements());
      encode(e, y, stored, {}, device);
      only_launches("relu_max_pool_backward from index and " + stash + name, [&] {
        relu_max_pool_backward(dy, {window_index_of(w), dy.type, dy.dims, kept(index)},
                               {e, dy.type, dy.dims, kept(stored)}, dx, w, rule, device);
      });
      expect_ok(stored);
    }
    expect_ok(index);
    expect_ok(code);
  }
}

/// What has no elements needs no launch, and nothing else.
TEST_P(device_non_owning, nothing) {
  const tensor_view none = empty(type(), {0});
  const encoded_view stored = slot(0);
  only_launches(
      "encode nothing", [&] { encode(parse_encoding("bitmap"), none, stored, {}, device); }, false);
  only_launches(
      "encode no items", [&] { encode_batch({}, {}, device); }, false);
  only_launches(
      "decode no items", [&] { decode_batch({}, {}, device); }, false);
}

}  // namespace
}  // namespace stash
