// SPDX-License-Identifier: Apache-2.0
#include "stash/batch.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "encoders/detail.hpp"
#include "encoders/device/backend.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/overlap_check.hpp"
#include "encoders/public_call.hpp"

namespace stash {
namespace {

using namespace encoders;

/// Up to this many elements a tensor is one thread's work: threads take whole tensors, and nobody waits for
/// a join in between. Larger ones are cut into tiles.
constexpr std::int64_t small_elements = std::int64_t{1} << 18;

/// Runs check(name of the call and item) for every item. The name is written in place: what checks well must
/// not allocate.
template <class Check>
void check_items(std::string_view function, std::size_t count, const Check& check) {
  std::array<char, 64> name;
  for (std::size_t i = 0; i < count; ++i) {
    const auto written = fmt::format_to_n(name.data(), name.size(), "{}: items[{}]", function, i);
    check(std::string_view(name.data(), written.size), i);
  }
}

/// An access of an item.
struct item_access {
  memory_access what;
  std::size_t item;
  std::uintptr_t last_end;  ///< among sorted ones: of this one and of all that begin before it
};

[[noreturn]] void fail_items(std::string_view function, const item_access& a, const item_access& b) {
  const bool a_writes = a.what.how == use::written;
  const item_access &written = a_writes ? a : b, &other = a_writes ? b : a;
  fail_overlap(fmt::format("{}: items[{}]", function, written.item), written.what,
               fmt::format("items[{}].", other.item), other.what);
}

/// No item may write what another reads or writes. Outputs and arenas are sorted by address, a number of them
/// at a time (nothing may be allocated), and everything else is looked up there.
template <class Item>
void check_item_overlap(std::string_view function, std::span<const Item> items) {
  constexpr std::size_t capacity = 256, most_of_item = 3;
  if (items.size() < 2) return;
  std::array<item_access, capacity> sorted;
  const auto is_sorted_in = [](const memory_access& p) {
    return p.how == use::written || p.how == use::shared;
  };
  for (std::size_t first = 0, last = 0; first < items.size(); first = last) {
    auto end = sorted.begin();
    for (; last < items.size() && sorted.end() - end >= std::ptrdiff_t{most_of_item}; ++last) {
      accesses_of(items[last], use::shared, [&](const memory_access& p) {
        if (is_sorted_in(p) && !p.where.empty()) *end++ = {p, last, 0};
      });
    }
    std::sort(sorted.begin(), end, [](const item_access& a, const item_access& b) {
      return a.what.where.begin < b.what.where.begin;
    });
    // With those that begin before `at`; they are done where all that are left end before p.
    const auto compare = [&](auto at, const item_access& p) {
      while (at != sorted.begin() && (--at)->last_end > p.what.where.begin) {
        if (at->item != p.item && at->what.bothers(p.what)) fail_items(function, p, *at);
      }
    };
    std::uintptr_t last_end = 0;
    for (auto at = sorted.begin(); at != end; ++at) {
      compare(at, *at);
      at->last_end = last_end = std::max(last_end, at->what.where.end);
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      accesses_of(items[i], use::shared, [&](const memory_access& p) {
        // The others were compared when they were sorted in.
        if (p.where.empty() || (is_sorted_in(p) && i < last)) return;
        const auto first_after = std::lower_bound(
            sorted.begin(), end, p.where.end,
            [](const item_access& a, std::uintptr_t address) { return a.what.where.begin < address; });
        compare(first_after, {p, i, 0});
      });
    }
  }
}

template <class Item, class Elements, class Run>
void run_batch(std::span<const Item> items, const execution_context& context, const Elements& elements,
               const Run& run) {
  execution_context alone = context;
  alone.parallel_for = nullptr;
  parallel_for(context, static_cast<std::int64_t>(items.size()), 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const Item& item = items[static_cast<std::size_t>(i)];
                   if (elements(item) <= small_elements) run(item, alone);
                 }
               });
  for (const Item& item : items) {
    if (elements(item) > small_elements) run(item, context);
  }
}

}  // namespace

std::size_t batch_workspace_bytes(std::span<const encode_item> items, const execution_context& context) try {
  std::size_t most = 0;
  for (const encode_item& item : items)
    most = std::max(most, workspace_bytes(item.how, item.input.type, item.input.elements(), context));
  return most;
} catch (...) {
  encoders::rethrow("batch_workspace_bytes");
}

void encode_batch(std::span<const encode_item> items, const workspace_view& workspace,
                  const execution_context& context) try {
  check_items("encode_batch", items.size(),
              [&](std::string_view name, std::size_t i) { check_encode(name, items[i], context); });
  check_item_overlap("encode_batch", items);
  check_workspace("encode_batch", workspace, batch_workspace_bytes(items, context), items);
  // The bounds of a range_mask are rounded by the host.
  if (on_device(context))
    return in_default_rounding([&] { device::kernels().encode_batch(items, workspace, context); });
  run_batch(
      items, context, [](const encode_item& item) { return item.input.elements(); },
      [&](const encode_item& item, const execution_context& c) { run_encode(item, workspace, c); });
} catch (...) {
  encoders::rethrow("encode_batch");
}

void decode_batch(std::span<const decode_item> items, const workspace_view& /*workspace*/,
                  const execution_context& context) try {
  check_items("decode_batch", items.size(),
              [&](std::string_view name, std::size_t i) { check_decode(name, items[i], context); });
  check_item_overlap("decode_batch", items);
  if (on_device(context)) return device::kernels().decode_batch(items, context);
  run_batch(
      items, context, [](const decode_item& item) { return item.output.elements(); }, run_decode);
} catch (...) {
  encoders::rethrow("decode_batch");
}

}  // namespace stash
