#include "stash/batch.hpp"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "detail.hpp"
#include "device.hpp"
#include "encoding_checks.hpp"

namespace stash {
namespace {

using namespace detail;

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

std::size_t batch_workspace_bytes(std::span<const encode_item> items, const execution_context& context) {
  std::size_t most = 0;
  for (const encode_item& item : items)
    most = std::max(most, workspace_bytes(item.how, item.input.type, item.input.elements(), context));
  return most;
}

void encode_batch(std::span<const encode_item> items, const workspace_view& workspace,
                  const execution_context& context) {
  check_items("encode_batch", items.size(),
              [&](std::string_view name, std::size_t i) { check_encode(name, items[i], context); });
  check_workspace("encode_batch", workspace, batch_workspace_bytes(items, context));
  if (on_device(context)) return device::encode_batch(items, workspace, context);
  run_batch(
      items, context, [](const encode_item& item) { return item.input.elements(); },
      [&](const encode_item& item, const execution_context& c) { run_encode(item, workspace, c); });
}

void decode_batch(std::span<const decode_item> items, const workspace_view& /*workspace*/,
                  const execution_context& context) {
  check_items("decode_batch", items.size(),
              [&](std::string_view name, std::size_t i) { check_decode(name, items[i], context); });
  if (on_device(context)) return device::decode_batch(items, context);
  run_batch(
      items, context, [](const decode_item& item) { return item.output.elements(); }, run_decode);
}

}  // namespace stash
