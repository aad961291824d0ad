// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "planner/explain_names.hpp"
#include "planner/graph/needs.hpp"
#include "planner/memory/options.hpp"
#include "planner/plan.hpp"

namespace stash::planner {
namespace {

std::string form_on_device(const stash_choice& c) {
  switch (c.kind) {
    case stash_kind::none:
      return "-";
    case stash_kind::raw:
      return "raw";
    case stash_kind::encoded:
      return to_string(c.stored);
    case stash_kind::recompute:
      return adds_mask(c) ? "recompute+" + to_string(c.stored) : "recompute";
  }
  return "";
}

std::string form_of(const stash_choice& c) {
  return form_on_device(c) + (c.swapped ? ", on host" : "");
}

double mb(std::int64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

std::string time_of(const plan& p) {
  const plan_times& t = p.times;
  const char* const proof = p.certificate.prices.empty()
                                ? "the sum of durations, without a certificate"
                                : "certified by prices of memory and link, checked by stash verify";
  return fmt::format(
      "time on {}: {:.3f} ms with nothing encoded or moved, planned {:.3f} ms, no plan below {:.3f} ms (gap "
      "{:.2f} %; {})\n",
      printable(t.model), t.unplanned_ms, t.simulated_ms, t.bound_ms,
      t.bound_ms > 0.0 ? 100.0 * (t.simulated_ms / t.bound_ms - 1.0) : 0.0, proof);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool two_bytes =
        byte(i) == 0xc2 && i + 1 < text.size() && byte(i + 1) >= 0x80 && byte(i + 1) < 0xa0;
    if (two_bytes) {
      shown += fmt::format("\\xc2\\x{:02x}", byte(++i));
    } else if (byte(i) < 0x20 || byte(i) == 0x7f) {
      shown += fmt::format("\\x{:02x}", byte(i));
    } else {
      shown += text[i];
    }
  }
  return shown;
}

std::string explain(const plan& p) {
  const graph& g = p.network;
  const plan_sizes& z = p.sizes;
  std::string text =
      fmt::format("{}, batch {}, policy {}", printable(g.name), g.batch, to_string(p.chosen_policy));
  text += p.budget_bytes > 0 ? fmt::format(", budget {} bytes\n", p.budget_bytes)
                             : std::string(", smallest peak\n");
  text += fmt::format(
      "batch-proportional: baseline {:.3f} MB, planned {:.3f} MB (ratio {:.2f}), bound {:.3f} MB, largest op "
      "{:.3f} MB ({})\n",
      mb(z.baseline_peak), mb(z.planned_peak),
      z.planned_peak > 0 ? static_cast<double>(z.baseline_peak) / static_cast<double>(z.planned_peak) : 0.0,
      mb(z.bound), mb(z.wall), z.wall_op.valid() ? printable(g.op_at(z.wall_op).name) : "none");
  text += fmt::format(
      "everything: baseline {:.3f} MB, planned {:.3f} MB, of which weights, gradients, momentum and "
      "statistics {:.3f} MB, workspace {:.3f} MB\n",
      mb(z.baseline_peak_total), mb(z.planned_peak_total), mb(z.parameter_bytes), mb(z.workspace_bytes));
  if (p.model) text += time_of(p);
  if (p.cut_groups > 0) {
    text += fmt::format("{} groups of maps have too many combinations of choices: some of them were tried\n",
                        p.cut_groups);
  }
  text += "\n";
  std::vector<storage_id> stashed;
  std::size_t widest = 8;
  for (const storage_id s : p.choices.ids()) {
    if (p.choices[s].kind == stash_kind::none) continue;
    stashed.push_back(s);
    widest = std::max(widest, printable(g.storages[s].name).size());
  }
  text += fmt::format("{:<{}}  {:<20} {:>14} {:>14}  read by; why\n", "tensor", widest, "kept as",
                      "bytes before", "bytes after");
  const auto all_readers = readers_of(g, p.alternative);
  for (const storage_id s : stashed) {
    const stash_choice& c = p.choices[s];
    std::string readers;
    for (const reader& r : all_readers[s]) {
      readers += fmt::format("{}{} ({})", readers.empty() ? "" : ", ", printable(g.op_at(r.op).name),
                             to_string(r.what));
    }
    text += fmt::format("{:<{}}  {:<20} {:>14} {:>14}  {}; {}{}\n", printable(g.at(s).name), widest,
                        form_of(c), c.bytes_before, c.bytes_after, readers,
                        c.swapped ? "goes to the host and comes back; " : "", printable(c.reason));
  }
  return text;
}

}  // namespace stash::planner
