// SPDX-License-Identifier: Apache-2.0
// Non-owning calls of the C API on a device: they do there, in the caller's stream, what they do on the host.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "simt/c_api_sides.hpp"
#include "support/pool_forms.hpp"

namespace {

using namespace stash_test;

constexpr std::int32_t rule = STASH_RULE_PYTORCH;

class device_c_api : public c_api_sides, public testing::WithParamInterface<std::int32_t> {
 protected:
  static std::int32_t type() { return GetParam(); }
  using dims = std::vector<std::int64_t>;

  map& values(const dims& d, std::int64_t pitch = 0) { return map_of(type(), d, content::values, pitch); }
  map& gradients(const dims& d) { return map_of(type(), d, content::gradients); }
  map& results(const dims& d, std::int64_t pitch = 0) { return map_of(type(), d, content::results, pitch); }
  map& decoded(const stash_encoding& e, std::int64_t elements) {
    const bool mask = e.kind == STASH_KIND_SIGN_MASK || e.kind == STASH_KIND_RANGE_MASK;
    return map_of(mask ? STASH_DTYPE_U8 : type(), {elements}, content::results);
  }

  static std::vector<std::string> encodings() {
    std::vector<std::string> names;
    for (const stash::test::pair_under_test& pair : stash::test::pairs()) {
      if (pair.type == static_cast<stash::dtype>(type())) names.push_back(pair.name);
    }
    return names;
  }
};

std::string type_name(const testing::TestParamInfo<std::int32_t>& tested) {
  return tested.param == STASH_DTYPE_F32 ? "f32" : tested.param == STASH_DTYPE_F16 ? "f16" : "bf16";
}

constexpr std::int32_t types[] = {STASH_DTYPE_F32, STASH_DTYPE_F16, STASH_DTYPE_BF16};

INSTANTIATE_TEST_SUITE_P(types, device_c_api, testing::ValuesIn(types), type_name);

TEST_P(device_c_api, encodings) {
  constexpr std::int64_t elements = 5003;
  struct work {
    stash_encoding how;
    encoded_slot &stored, &copy;
    map& back;
  };
  const map& x = values({elements});
  std::vector<work> all;
  for (const std::string& name : encodings()) {
    const stash_encoding e = c_encoding(name.c_str());
    std::size_t needed = 0;
    expect_ok(stash_workspace_bytes(&e, type(), elements, &context_, &needed));
    EXPECT_LE(needed, workspace_.bytes);
    EXPECT_EQ(needed > 0, e.kind == STASH_KIND_BITMAP || e.kind == STASH_KIND_CSR) << name;
    all.push_back({e, slot_for(e, type(), elements), slot_for(e, type(), elements), decoded(e, elements)});
  }
  expect_same_on_both_sides([&](const side& on) {
    for (const work& w : all) {
      expect_ok(stash_encode(&w.how, on(x), on(w.stored), on.workspace, on.context));
      expect_ok(
          stash_decode(c_stored(w.how, on(w.stored), *on(w.back)), on(w.back), on.workspace, on.context));
      expect_ok(stash_canonicalise(c_stored(w.how, on(w.stored), *on(x)), on(w.copy), on.context));
    }
  });
}

TEST_P(device_c_api, pixels_with_gaps) {
  const map &x = values({30, 16}, 24), &back = results({30, 16}, 20);
  const stash_encoding e = c_encoding("bitmap");
  const encoded_slot& stored = slot_for(e, type(), 480);
  expect_same_on_both_sides([&](const side& on) {
    expect_ok(stash_encode(&e, on(x), on(stored), on.workspace, on.context));
    expect_ok(stash_decode(c_stored(e, on(stored), *on(back)), on(back), nullptr, on.context));
  });
}

TEST_P(device_c_api, export_of_csr) {
  constexpr std::int64_t elements = 3000;
  const map& x = values({elements});
  const stash_encoding e = c_encoding("csr");
  const encoded_slot& stored = slot_for(e, type(), elements);
  const map &offsets = map_of(STASH_DTYPE_S32, {elements / 256 + 2}, content::results),
            &columns = map_of(STASH_DTYPE_S32, {elements}, content::results), &entries = results({elements});
  expect_same_on_both_sides([&](const side& on) {
    expect_ok(stash_encode(&e, on(x), on(stored), on.workspace, on.context));
    stash_csr32_view out = STASH_INIT(stash_csr32_view);
    out.row_offsets = static_cast<std::uint32_t*>(on(offsets)->data);
    out.columns = static_cast<std::uint32_t*>(on(columns)->data);
    out.values = on(entries)->data;
    out.capacity = elements;
    out.type = type();
    std::int64_t nonzeros = -5;
    expect_ok(stash_csr_export32(c_stored(e, on(stored), *on(x)), &out, on.context, &nonzeros));
    // What a device counts is there later.
    EXPECT_EQ(nonzeros == -1, on.device);
  });
}

/// All encodings in two calls; sparse ones have their values in an arena next to their slots.
TEST_P(device_c_api, batches) {
  arena& overflow_to = arena_of(std::size_t{1} << 19);
  struct work {
    stash_encoding how;
    map &x, &back;
    encoded_slot& stored;
  };
  std::vector<work> all;
  for (const std::string& name : encodings()) {
    const stash_encoding e = c_encoding(name.c_str());
    for (const std::int64_t n : {900, 3000}) {
      const bool sparse = e.kind == STASH_KIND_BITMAP || e.kind == STASH_KIND_CSR;
      std::size_t empty_slot = 0;
      expect_ok(stash_encoded_bytes_at_density(&e, type(), n, 0, &empty_slot));
      all.push_back({e, values({n}), decoded(e, n),
                     sparse ? slot_of(empty_slot, &overflow_to) : slot_for(e, type(), n)});
    }
  }
  const auto items = [&](const side& on, bool back) {
    std::vector<stash_batch_item> list;
    for (const work& w : all)
      list.push_back({sizeof(stash_batch_item), &w.how, on(back ? w.back : w.x), on(w.stored)});
    return list;
  };
  expect_same_on_both_sides(
      [&](const side& on) {
        const std::vector<stash_batch_item> to_encode = items(on, false), to_decode = items(on, true);
        expect_ok(stash_encode_batch(to_encode.data(), to_encode.size(), on.workspace, on.context));
        expect_ok(stash_decode_batch(to_decode.data(), to_decode.size(), on.workspace, on.context));
        expect_ok(stash_encode_batch(nullptr, 0, nullptr, on.context));
        expect_ok(stash_decode_batch(nullptr, 0, nullptr, on.context));
      },
      true);
  EXPECT_GT(claimed_on_device(overflow_to), 0U);
}

TEST_P(device_c_api, activations) {
  const dims d{3001};
  const stash_encoding sign = c_encoding("sign_mask"), range = c_encoding("range_mask");
  const map &x = values(d), &dy = gradients(d);
  struct layer {
    encoded_slot& mask;
    map &y, &y_alone, &dx, &dx_dense;
  };
  const auto make = [&] {
    return layer{slot_for(sign, type(), d[0]), results(d), results(d), results(d), results(d)};
  };
  const layer relu = make(), leaky = make(), clip = make();
  expect_same_on_both_sides([&](const side& on) {
    const stash_execution_context* const c = on.context;
    expect_ok(stash_relu_forward(on(x), on(relu.y), on(relu.mask), rule, c));
    expect_ok(stash_relu_forward(on(x), on(relu.y_alone), nullptr, rule, c));
    expect_ok(stash_relu_backward(on(dy), c_stored(sign, on(relu.mask), *on(dy)), on(relu.dx), rule, c));
    expect_ok(stash_relu_backward_dense(on(dy), on(relu.y), on(relu.dx_dense), rule, c));
    expect_ok(stash_leaky_relu_forward(on(x), on(leaky.y), on(leaky.mask), 0.125F, c));
    expect_ok(stash_leaky_relu_forward(on(x), on(leaky.y_alone), nullptr, 0.125F, c));
    expect_ok(
        stash_leaky_relu_backward(on(dy), c_stored(sign, on(leaky.mask), *on(dy)), on(leaky.dx), 0.125F, c));
    expect_ok(stash_leaky_relu_backward_dense(on(dy), on(x), on(leaky.dx_dense), 0.125F, c));
    expect_ok(stash_clip_forward(on(x), on(clip.y), on(clip.mask), -1, 2, rule, c));
    expect_ok(stash_clip_forward(on(x), on(clip.y_alone), nullptr, -1, 2, rule, c));
    expect_ok(
        stash_clip_backward(on(dy), c_stored(range, on(clip.mask), *on(dy)), on(clip.dx), -1, 2, rule, c));
    expect_ok(stash_clip_backward_dense(on(dy), on(x), on(clip.dx_dense), -1, 2, rule, c));
  });
}

TEST_P(device_c_api, dropout) {
  const dims d{3001};
  const map &x = values(d), &dy = gradients(d), &y = results(d), &y_alone = results(d), &dx = results(d),
            &dx_from_key = results(d);
  const encoded_slot& mask = slot_for(c_encoding("sign_mask"), type(), d[0]);
  stash_dropout_key key = STASH_INIT(stash_dropout_key);
  key.seed = 11;
  key.step = 12;
  key.layer = 13;
  expect_same_on_both_sides([&](const side& on) {
    expect_ok(stash_dropout_forward(on(x), on(y), on(mask), 0.3F, &key, on.context));
    expect_ok(stash_dropout_forward(on(x), on(y_alone), nullptr, 0.3F, &key, on.context));
    expect_ok(stash_dropout_backward(on(dy), c_stored(c_encoding("sign_mask"), on(mask), *on(dy)), on(dx),
                                     0.3F, on.context));
    expect_ok(stash_dropout_backward_key(on(dy), on(dx_from_key), 0.3F, &key, on.context));
  });
}

class device_c_api_pooling : public device_c_api {
 protected:
  static dims dims_of(const stash::shape& s) {
    dims d;
    for (int i = 0; i < s.rank(); ++i)
      d.push_back(s[i]);
    return d;
  }
  static stash_pool_window window_of(const stash::pool_window& w) {
    stash_pool_window c = STASH_INIT(stash_pool_window);
    c.kernel_h = w.kernel_h;
    c.kernel_w = w.kernel_w;
    c.stride_h = w.stride_h;
    c.stride_w = w.stride_w;
    c.pad_top = w.pad_top;
    c.pad_left = w.pad_left;
    c.kernel_d = w.kernel_d;
    c.stride_d = w.stride_d;
    c.pad_front = w.pad_front;
    c.dilation_h = w.dilation_h;
    c.dilation_w = w.dilation_w;
    c.dilation_d = w.dilation_d;
    c.layout = static_cast<std::int32_t>(w.layout);
    return c;
  }
  encoded_slot& codes_for(const pool_form& f, std::int32_t kind) {
    stash_encoding e = STASH_INIT(stash_encoding);
    e.kind = kind;
    e.window_taps = f.window.taps();
    return slot_for(e, type(), f.y.elements());
  }
};

INSTANTIATE_TEST_SUITE_P(types, device_c_api_pooling, testing::ValuesIn(types), type_name);

TEST_P(device_c_api_pooling, alone_and_after_relu) {
  struct work {
    stash_pool_window window;
    map &x, &dy, &y, &relu_y, &positions;
    encoded_slot &index, &index_again, &relu_index, &code, &bitmap, &signs;
    std::vector<map*> dx;
  };
  const stash_encoding bitmap = c_encoding("bitmap"), sign_mask = c_encoding("sign_mask");
  std::vector<work> all;
  for (const pool_form& f : pool_forms()) {
    const dims x = dims_of(f.x), y = dims_of(f.y);
    all.push_back({window_of(f.window),
                   values(x),
                   gradients(y),
                   results(y),
                   results(y),
                   map_of(STASH_DTYPE_S32, {2 * f.y.elements()}, content::results),
                   codes_for(f, STASH_KIND_WINDOW_INDEX),
                   codes_for(f, STASH_KIND_WINDOW_INDEX),
                   codes_for(f, STASH_KIND_WINDOW_INDEX),
                   codes_for(f, STASH_KIND_RELU_POOL),
                   slot_for(bitmap, type(), f.y.elements()),
                   slot_for(sign_mask, type(), f.y.elements()),
                   {}});
    for (int way = 0; way < 7; ++way)
      all.back().dx.push_back(&results(x));
  }
  expect_same_on_both_sides([&](const side& on) {
    const stash_execution_context* const c = on.context;
    for (const work& w : all) {
      const stash_pool_window* const window = &w.window;
      const auto dx = [&](std::size_t way) { return on(*w.dx[way]); };
      const auto index = [&](const encoded_slot& codes) {
        return c_stored(c_codes(STASH_KIND_WINDOW_INDEX, w.window), on(codes), *on(w.dy));
      };
      expect_ok(stash_max_pool_forward(on(w.x), on(w.y), window, on(w.index), rule, c));
      expect_ok(stash_max_pool_backward(on(w.dy), index(w.index), dx(0), window, c));
      auto* const positions = static_cast<std::int64_t*>(on(w.positions)->data);
      const std::int64_t* const y_dims = on(w.y)->dims;
      const std::int64_t* const x_dims = on(w.x)->dims;
      const std::int32_t rank = on(w.x)->rank;
      expect_ok(stash_decode_window_index(index(w.index), x_dims, window, positions, c));
      expect_ok(stash_encode_window_index(positions, rank, y_dims, x_dims, window, on(w.index_again), c));
      expect_ok(stash_max_pool_backward_dense(on(w.dy), on(w.x), dx(1), window, rule, c));
      expect_ok(
          stash_relu_max_pool_forward(on(w.x), on(w.relu_y), window, on(w.code), on(w.relu_index), rule, c));
      expect_ok(stash_encode(&bitmap, on(w.relu_y), on(w.bitmap), on.workspace, c));
      expect_ok(stash_encode(&sign_mask, on(w.relu_y), on(w.signs), nullptr, c));
      expect_ok(stash_relu_max_pool_backward(
          on(w.dy), c_stored(c_codes(STASH_KIND_RELU_POOL, w.window), on(w.code), *on(w.dy)), dx(2), window,
          c));
      expect_ok(stash_relu_max_pool_backward_sign(
          on(w.dy), index(w.relu_index), c_stored(bitmap, on(w.bitmap), *on(w.dy)), dx(3), window, rule, c));
      expect_ok(stash_relu_max_pool_backward_sign(on(w.dy), index(w.relu_index),
                                                  c_stored(sign_mask, on(w.signs), *on(w.dy)), dx(4), window,
                                                  rule, c));
      expect_ok(stash_relu_max_pool_backward_output(on(w.dy), index(w.relu_index), on(w.relu_y), dx(5),
                                                    window, rule, c));
      expect_ok(stash_relu_max_pool_backward_dense(on(w.dy), on(w.x), dx(6), window, rule, c));
    }
  });
}

/// What only the data shows is no failure of a call.
TEST_P(device_c_api, reports_of_small_slots_and_wrong_codes) {
  const map &x = gradients({9000}), &dy = gradients({2, 4, 4, 8}), &dx = results({2, 8, 8, 8});
  const stash_encoding bitmap = c_encoding("bitmap");
  std::size_t empty_slot = 0;
  expect_ok(stash_encoded_bytes_at_density(&bitmap, type(), 9000, 0, &empty_slot));
  encoded_slot &small = slot_of(empty_slot), &nobodys = slot_of(128);
  small.same_offsets = false;
  small.status = STASH_STATUS_CAPACITY;
  nobodys.status = STASH_STATUS_CORRUPT;
  stash_pool_window window = STASH_INIT(stash_pool_window);
  window.kernel_h = window.kernel_w = 3;
  window.pad_top = window.pad_left = 1;
  expect_same_on_both_sides([&](const side& on) {
    expect_ok(stash_encode(&bitmap, on(x), on(small), on.workspace, on.context));
    expect_ok(stash_max_pool_backward(
        on(dy), c_stored(c_codes(STASH_KIND_WINDOW_INDEX, window), on(nobodys), *on(dy)), on(dx), &window,
        on.context));
  });
}

}  // namespace
