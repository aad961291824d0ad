// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Positions of argmaxes and codes of window_index by their slow definition: every tap of the window is
/// looked at.

#include <limits>

#include "encoders/pooling/pool_general_reference.hpp"

namespace stash::test {

/// Layers whose argmaxes are known, for encode_window_index() and decode_window_index().
struct window_index_case {
  geometry g;
  bool first;
  shape x, y;
  std::size_t bits;

  explicit window_index_case(geometry layer)
      : g(std::move(layer)),
        first(g.window.layout == pool_layout::channels_first),
        x(dims_of(g.x)),
        y(dims_of(g.y)),
        bits(g.window.taps() <= 4    ? 2
             : g.window.taps() <= 16 ? 4
                                     : 8) {}

  std::size_t count() const { return static_cast<std::size_t>(g.y.count()); }
  std::size_t bytes() const { return (count() * bits + 127) / 128 * 16; }

  /// The bytes of the codes of these positions, in memory order; `corrupt` tells whether one is no tap.
  std::vector<std::uint8_t> encoded(const std::vector<std::int64_t>& flat, bool& corrupt) const {
    std::vector<std::uint8_t> plane(bytes(), 0);
    corrupt = false;
    for_each_value([&](std::size_t i, std::int64_t oz, std::int64_t oy, std::int64_t ox) {
      bool found = false;
      for_each_tap(g, oz, oy, ox, [&](int tap, std::int64_t tz, std::int64_t ty, std::int64_t tx) {
        if (flat[i] != position_of(tz, ty, tx)) return;
        found = true;
        const std::size_t bit = i * bits;
        plane[bit / 8] = static_cast<std::uint8_t>(plane[bit / 8] | tap << (bit % 8));
      });
      corrupt = corrupt || !found;
    });
    return plane;
  }

  /// The positions that these bytes stand for.
  std::vector<std::int64_t> decoded(const std::uint8_t* plane, bool& corrupt) const {
    std::vector<std::int64_t> flat(count());
    corrupt = false;
    for_each_value([&](std::size_t i, std::int64_t oz, std::int64_t oy, std::int64_t ox) {
      const int code = plane[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1);
      bool found = false, any = false;
      for_each_tap(g, oz, oy, ox, [&](int tap, std::int64_t tz, std::int64_t ty, std::int64_t tx) {
        if (!any || tap == code) flat[i] = position_of(tz, ty, tx);
        any = true;
        found = found || tap == code;
      });
      corrupt = corrupt || !found;
    });
    return flat;
  }

  /// The position of a random tap of each window.
  std::vector<std::int64_t> random_positions(std::mt19937& random) const {
    std::vector<std::int64_t> flat(count());
    for_each_value([&](std::size_t i, std::int64_t oz, std::int64_t oy, std::int64_t ox) {
      std::vector<std::int64_t> all;
      for_each_tap(g, oz, oy, ox, [&](int, std::int64_t tz, std::int64_t ty, std::int64_t tx) {
        all.push_back(position_of(tz, ty, tx));
      });
      flat[i] = all[random() % all.size()];
    });
    return flat;
  }

  /// Some of them replaced by others that may be no taps.
  void damage(std::vector<std::int64_t>& flat, std::mt19937& random) const {
    const std::int64_t plane = g.x.d * g.x.h * g.x.w;
    const std::int64_t strange[] = {-1,
                                    plane,
                                    plane + 1,
                                    -plane,
                                    std::int64_t{1} << 31,
                                    std::int64_t{1} << 32,
                                    std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min()};
    for (int changes = pick(random, 1, 4); changes > 0; --changes) {
      std::int64_t& one = flat[random() % flat.size()];
      one = random() % 2 == 0 ? strange[random() % std::size(strange)]
                              : static_cast<std::int64_t>(random()) % plane;
    }
  }

 private:
  std::int64_t position_of(std::int64_t tz, std::int64_t ty, std::int64_t tx) const {
    return (tz * g.x.h + ty) * g.x.w + tx;
  }
  shape dims_of(const map& m) const {
    if (first) return g.deep ? shape{m.n, m.c, m.d, m.h, m.w} : shape{m.n, m.c, m.h, m.w};
    return g.deep ? shape{m.n, m.d, m.h, m.w, m.c} : shape{m.n, m.h, m.w, m.c};
  }
  /// Calls visit(number in memory order, oz, oy, ox).
  template <class Visit>
  void for_each_value(const Visit& visit) const {
    for_each_window(g,
                    [&](std::int64_t s, std::int64_t c, std::int64_t oz, std::int64_t oy, std::int64_t ox) {
                      visit(static_cast<std::size_t>(position(g.y, first, s, c, oz, oy, ox)), oz, oy, ox);
                    });
  }
};

/// Layers at the edges of words, tiles and windows, in both layouts.
inline std::vector<geometry> window_index_edges() {
  pool_window most{16, 16, 5, 5, 7, 7}, deep{2, 2, 2, 2}, dilated{3, 3, 1, 2, 2, 3}, long_row{1, 256, 1, 3};
  deep.kernel_d = 3, deep.stride_d = 2, deep.pad_front = 1, deep.dilation_d = 2;
  dilated.dilation_h = 2, dilated.dilation_w = 3;
  std::vector<geometry> all;
  for (const pool_layout layout : {pool_layout::channels_last, pool_layout::channels_first}) {
    const auto add = [&](const pool_window& window, const map& x, bool is_deep) {
      geometry g{window, x, {}, is_deep};
      g.window.layout = layout;
      EXPECT_TRUE(fit(g, 1)) << describe(g);
      all.push_back(std::move(g));
    };
    for (const std::int64_t n :
         {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 2049}) {
      add({2, 2, 2, 2}, {1, 1, 1, 2, 2 * n, {}}, false);
      add({3, 3, 1, 1, 1, 1}, {1, 1, 1, 1, n, {}}, false);
      add({5, 5, 2, 2, 2, 2}, {1, n, 1, 2, 2, {}}, false);
    }
    add(most, {2, 3, 1, 30, 31, {}}, false);
    add(dilated, {2, 5, 1, 9, 14, {}}, false);
    add(deep, {2, 3, 7, 6, 8, {}}, true);
    add(long_row, {1, 2, 1, 2, 600, {}}, false);
    add({1, 1, 1, 1}, {2, 3, 1, 4, 5, {}}, false);
    add({2, 2, 2, 2}, {2, 70, 1, 40, 42, {}}, false);
  }
  return all;
}

}  // namespace stash::test
