// What a user's C++ project does: stash, restore, plan, and catch what the library throws.

#include <cstdio>
#include <vector>

#include "stash/planning.hpp"
#include "stash/stash.hpp"
#include "stash/stashed_tensor.hpp"

int main() {
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
