// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The gradient gate: how far the gradients of a step with lossy stashes are from those of the same step
/// with everything kept. Accuracy does not notice real bugs of a lossy stash; gradients do.

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "executor/executor.hpp"

namespace stash::executor::testing {

/// Sums over the elements of a gradient g and its lossy counterpart h. Adding two of them treats the two
/// gradients as one longer vector.
struct gradient_distance {
  double gg = 0, hh = 0, gh = 0, dd = 0, dg = 0;  ///< with d = h - g

  void add(std::span<const float> g, std::span<const float> h) {
    for (std::size_t i = 0; i < g.size(); ++i) {
      const auto a = static_cast<double>(g[i]), b = static_cast<double>(h[i]);
      gg += a * a;
      hh += b * b;
      gh += a * b;
      dd += (b - a) * (b - a);
      dg += (b - a) * a;
    }
  }
  gradient_distance& operator+=(const gradient_distance& o) {
    gg += o.gg;
    hh += o.hh;
    gh += o.gh;
    dd += o.dd;
    dg += o.dg;
    return *this;
  }

  /// A gradient that is not finite is as far away as can be.
  double error() const { return finite() ? std::sqrt(dd / gg) : INFINITY; }
  double cosine() const { return finite() ? gh / std::sqrt(gg * hh) : -1.0; }
  double bias() const { return finite() ? dg / gg : INFINITY; }
  std::string text() const {
    return fmt::format("error {:.2e}  1-cosine {:.1e}  bias {:+.1e}", error(), 1.0 - cosine(), bias());
  }

 private:
  bool finite() const { return std::isfinite(gg + hh + gh + dd + dg) && gg > 0 && hh > 0; }
};

/// What a format has to keep to.
struct gradient_gate {
  double error, cosine, bias;

  bool passes(const gradient_distance& d) const {
    return d.error() < error && d.cosine() > cosine && std::abs(d.bias()) < bias;
  }
};
inline constexpr gradient_gate fp16_gate{1e-3, 0.999, 1e-4};
inline constexpr gradient_gate fp8_gate{0.05, 0.999, 0.01};

using gradients = std::map<std::string, std::vector<float>>;  ///< by the name of the weight gradient

inline gradients gradients_of(const executor& e) {
  gradients result;
  const auto& storages = e.current_plan().network.storages;
  for (const planner::storage_id s : storages.ids()) {
    if (storages[s].role != planner::storage_role::weight_gradient) continue;
    const std::span<const float> values = e.parameter(s);
    result[storages[s].name] = {values.begin(), values.end()};
  }
  return result;
}

/// The distance per layer, and of the whole net.
struct gradient_reading {
  std::map<std::string, gradient_distance> layers;
  gradient_distance net;

  void add(const gradients& exact, const gradients& lossy) {
    for (const auto& [name, values] : exact) {
      gradient_distance d;
      d.add(values, lossy.at(name));
      layers[name] += d;
      net += d;
    }
  }
};

}  // namespace stash::executor::testing
