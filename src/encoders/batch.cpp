#include "stash/batch.hpp"

#include <fmt/format.h>

#include "detail.hpp"
#include "encoding_checks.hpp"

namespace stash {
namespace {

using namespace detail;

/// Up to this many elements a tensor is one thread's work: threads take whole tensors, and nobody waits for
/// a join in between. Larger ones are cut into tiles.
constexpr std::int64_t small_elements = std::int64_t{1} << 18;

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

void encode_batch(std::span<const encode_item> items, const workspace_view& /*workspace*/,
                  const execution_context& context) {
  for (std::size_t i = 0; i < items.size(); ++i)
    check_encode(fmt::format("encode_batch: items[{}]", i), items[i], context);
  run_batch(
      items, context, [](const encode_item& item) { return item.input.elements(); }, run_encode);
}

void decode_batch(std::span<const decode_item> items, const workspace_view& /*workspace*/,
                  const execution_context& context) {
  for (std::size_t i = 0; i < items.size(); ++i)
    check_decode(fmt::format("decode_batch: items[{}]", i), items[i], context);
  run_batch(
      items, context, [](const decode_item& item) { return item.output.elements(); }, run_decode);
}

}  // namespace stash
