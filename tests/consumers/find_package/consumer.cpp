// SPDX-License-Identifier: Apache-2.0
// What a user's C++ project does: stash, restore, plan, and catch what the library throws.

#include <cstdio>
#include <vector>

#include "stash/batch.hpp"
#include "stash/csr.hpp"
#include "stash/planning.hpp"
#include "stash/pool.hpp"
#include "stash/stash.hpp"
#include "stash/stashed_tensor.hpp"
#include "stash/swap.hpp"

namespace {

/// Structures of which a user names what matters, without a warning about the rest.
bool partly_named() {
  stash::counting_memory memory(stash::host_memory());
  float x[4] = {1, 2, 3, 4};
  const stash::const_tensor_view view{.data = x, .dims = {4}};
  const stash::stash_options options{.memory = &memory};
  const stash::swap_request request{.needed_at = 1};
  const stash::swapper_options swapping{.ahead = 2};
  const stash::planning_options planning{.budget_bytes = 1};
  const stash::encode_item item{.input = view};
  const stash::event event{.step = 3};
  const stash::csr32_view csr{.capacity = 1};
  const stash::pool_window window{.kernel_h = 3};
  const stash::execution_context context{.canonical = true};
  return stash::stashed_tensor(stash::parse_encoding("raw"), view, options).bytes() != 0 &&
         request.priority == 0 && swapping.chunk_bytes != 0 && planning.policy == "lossless" &&
         item.output.bytes == 0 && event.tensor.empty() && csr.values == nullptr && window.kernel_w == 2 &&
         context.stream == nullptr;
}

}  // namespace

int main() {
  if (!partly_named()) return 4;
  std::vector<float> x(5000, 0.0F), back(5000, 1.0F);
  for (std::size_t i = 0; i < x.size(); i += 3)
    x[i] = static_cast<float>(i);
  const stash::shape shape{50, 100};
  const stash::stashed_tensor kept(stash::parse_encoding("bitmap"),
                                   {x.data(), stash::dtype::f32, stash::memory_space::host, shape, 0});
  kept.restore({back.data(), stash::dtype::f32, stash::memory_space::host, shape, 0});
  if (back != x || kept.bytes() * 2 > kept.dense_bytes()) return 1;
  try {
    stash::plan_graph("{");
    return 2;
  } catch (const stash::error& e) {  // thrown on the other side of a library's boundary
    if (e.code() != stash::errc::bad_format) return 3;
  }
  std::printf("%zu bytes kept instead of %zu by stash %s\n", kept.bytes(), kept.dense_bytes(),
              STASH_VERSION_STRING);
  return 0;
}
