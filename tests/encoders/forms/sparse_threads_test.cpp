// SPDX-License-Identifier: Apache-2.0
// Encoders of sparse maps give the same bytes and reports whoever runs their ranges, in whatever order, and
// wait for no thread that has stopped in the middle.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "encoders/format/encode_tiles.hpp"
#include "encoders/support.hpp"

namespace {

using namespace stash;
using namespace stash_test;

constexpr std::int64_t batch = encoders::look_back::tiles_of_batch;

struct range {
  std::int64_t begin, end;
};
std::vector<range> ranges_of(std::int64_t count, std::int64_t grain) {
  std::vector<range> ranges;
  for (std::int64_t begin = 0; begin < count; begin += grain)
    ranges.push_back({begin, std::min(count, begin + grain)});
  return ranges;
}

/// A way to run the ranges of a loop.
struct schedule {
  std::string name;
  std::function<void(std::int64_t count, std::int64_t grain, const std::function<void(range)>& body)> run;

  execution_context context() {
    execution_context c;
    c.user = this;
    c.parallel_for = [](void* user, std::int64_t count, std::int64_t grain, range_function body,
                        void* state) {
      static_cast<schedule*>(user)->run(count, grain, [&](range r) { body(state, r.begin, r.end); });
    };
    return c;
  }
};

schedule in_caller(std::string name, std::function<void(std::vector<range>&)> order) {
  return {std::move(name), [order](std::int64_t count, std::int64_t grain, const auto& body) {
            std::vector<range> ranges = ranges_of(count, grain);
            order(ranges);
            for (const range r : ranges)
              body(r);
          }};
}

/// Threads that take ranges one by one, and give up their processors here and there.
schedule by_threads(int threads, unsigned seed) {
  return {std::to_string(threads) + " threads",
          [=](std::int64_t count, std::int64_t grain, const std::function<void(range)>& body) {
            const std::vector<range> ranges = ranges_of(count, grain);
            std::atomic<std::size_t> next{0};
            std::vector<std::thread> crew;
            for (int t = 0; t < threads; ++t) {
              crew.emplace_back([&, t] {
                std::mt19937 random(seed + static_cast<unsigned>(t));
                for (std::size_t i; (i = next.fetch_add(1)) < ranges.size();) {
                  for (unsigned pause = random() % 8; pause > 0; --pause)
                    std::this_thread::yield();
                  body(ranges[i]);
                }
              });
            }
            for (std::thread& thread : crew)
              thread.join();
          }};
}

/// A thread of its own for each range; the first one begins when all others have ended.
schedule first_range_last() {
  return {"the first range last", [](std::int64_t count, std::int64_t, const auto& body) {
            const std::vector<range> ranges = ranges_of(count, (count + 3) / 4);
            std::vector<std::thread> crew;
            for (std::size_t i = 1; i < ranges.size(); ++i)
              crew.emplace_back([&, i] { body(ranges[i]); });
            for (std::thread& thread : crew)
              thread.join();
            body(ranges[0]);
          }};
}

std::vector<schedule> schedules() {
  return {in_caller("the caller", [](std::vector<range>&) {}),
          in_caller("the caller, in reverse",
                    [](std::vector<range>& ranges) { std::reverse(ranges.begin(), ranges.end()); }),
          in_caller("the caller, in any order",
                    [](std::vector<range>& ranges) {
                      std::shuffle(ranges.begin(), ranges.end(), std::mt19937(3));
                    }),
          in_caller("the caller, at once",
                    [](std::vector<range>& ranges) {
                      ranges = {{0, ranges.back().end}};
                    }),
          by_threads(1, 1),
          by_threads(2, 2),
          by_threads(3, 3),
          by_threads(8, 4),
          first_range_last()};
}

/// Memory for a tensor, and what an encoder says of it.
struct stored {
  guarded_buffer slot, arena_memory, host_memory;
  std::uint64_t claimed = 0, host_claimed = 0;
  encode_report report;

  stored(std::size_t bytes, std::size_t arena_bytes)
      : slot(bytes), arena_memory(arena_bytes), host_memory(arena_bytes) {}
  overflow_arena arena() {
    return {arena_memory.data(), arena_memory.size(), &claimed,
            host_memory.data(),  host_memory.size(),  &host_claimed};
  }
  bool guards_intact() const {
    return slot.guards_intact() && arena_memory.guards_intact() && host_memory.guards_intact();
  }
  /// Bytes past the last payload in the slot are undefined.
  std::vector<std::uint8_t> used() const {
    std::vector<std::uint8_t> bytes = slot.copy();
    bytes.resize(std::min<std::size_t>(bytes.size(), report.slot_bytes));
    return bytes;
  }
};

void expect_same(const stored& one, const stored& other) {
  EXPECT_EQ(one.report.status, other.report.status);
  EXPECT_EQ(one.report.flags, other.report.flags);
  EXPECT_EQ(one.report.nonzeros, other.report.nonzeros);
  EXPECT_EQ(one.report.slot_bytes, other.report.slot_bytes);
  EXPECT_EQ(one.report.overflow_bytes, other.report.overflow_bytes);
  EXPECT_EQ(one.claimed, other.claimed);
  EXPECT_EQ(one.host_claimed, other.host_claimed);
  EXPECT_EQ(one.used(), other.used());
  EXPECT_EQ(one.arena_memory.copy(), other.arena_memory.copy());
  EXPECT_EQ(one.host_memory.copy(), other.host_memory.copy());
  EXPECT_TRUE(other.guards_intact());
}

/// Slots that hold everything, exactly or with free bytes; all but some tiles; half; nothing at all.
std::vector<std::size_t> slots_for(const encoding& e, const std::vector<float>& values) {
  const auto elements = static_cast<std::int64_t>(values.size());
  const std::size_t exact = encoded_bytes_exact(e, view_of(values), {});
  const std::size_t least = encoded_bytes_at_density(e, dtype::f32, elements, 0);
  std::vector<std::size_t> slots{encoded_bytes_bound(e, dtype::f32, elements), exact};
  if (elements == 0) return slots;
  for (const std::size_t some : {exact - (exact - least) / 16, least + (exact - least) / 2, least})
    slots.push_back(some / 16 * 16);
  return slots;
}

/// Densities differ from tile to tile, and there are batches of empty tiles.
std::vector<float> uneven_values(std::int64_t elements, flavour kind) {
  std::vector<float> values = make_values(elements, 0.6, kind, 5);
  for (std::int64_t tile = 0; tile * tile_elements < elements; ++tile) {
    const std::int64_t kept = tile % (3 * batch) < batch ? 5 * (tile % 3) : tile * 37 % tile_elements;
    for (std::int64_t i = kept; i < tile_elements && tile * tile_elements + i < elements; ++i)
      values[static_cast<std::size_t>(tile * tile_elements + i)] = 0;
  }
  return values;
}

TEST(sparse_threads, bytes_do_not_depend_on_who_runs_what_when) {
  const std::int64_t sizes[] = {0,
                                1,
                                tile_elements,
                                batch * tile_elements,
                                batch * tile_elements + 1,
                                15 * batch * tile_elements,
                                16 * batch * tile_elements,
                                17 * batch * tile_elements - 300};
  for (const char* name : {"bitmap", "csr", "bitmap_fp8", "csr_bf16", "bitmap_mxfp6_e2m3"}) {
    const encoding e = parse_encoding(name);
    for (const std::int64_t elements : sizes) {
      const std::vector<float> values = uneven_values(elements, flavour::special);
      for (const std::size_t slot_bytes : slots_for(e, values)) {
        for (const std::size_t arena_bytes : {std::size_t{0}, std::size_t{20000}, values.size() * 5 + 16}) {
          stored alone(slot_bytes, arena_bytes);
          const overflow_arena arena = alone.arena();
          encode(e, view_of(values), {alone.slot.data(), slot_bytes, &arena, &alone.report}, {}, {});
          for (schedule& some : ::schedules()) {
            SCOPED_TRACE(std::string(name) + ", " + std::to_string(elements) + " elements, slot of " +
                         std::to_string(slot_bytes) + ", " + some.name);
            stored together(slot_bytes, arena_bytes);
            const overflow_arena its_arena = together.arena();
            encode(e, view_of(values), {together.slot.data(), slot_bytes, &its_arena, &together.report}, {},
                   some.context());
            expect_same(alone, together);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

// --- threads that stop -----------------------------------------------------------------------------------

/// Threads of which all but the last stop at a tile, each at another one of those that it comes to, and go on
/// when those after it have ended.
class stopping_crew {
 public:
  stopping_crew(int threads, int first_stop) : threads_(threads), first_stop_(first_stop) {}

  execution_context context() {
    execution_context c;
    c.user = this;
    c.parallel_for = [](void* user, std::int64_t count, std::int64_t grain, range_function body,
                        void* state) {
      static_cast<stopping_crew*>(user)->run(ranges_of(count, grain),
                                             [&](range r) { body(state, r.begin, r.end); });
    };
    return c;
  }

  /// For each tile that a thread encodes.
  void visit() {
    std::unique_lock lock(mutex_);
    const int tile = tiles_of_thread_++;
    if (thread_ == threads_ - 1) {
      if (tile != 0) return;
      changed_.wait(lock, [this] { return stopped_ + ended_ == threads_ - 1; });
    } else if (tile == first_stop_ + 3 * thread_) {
      ++stopped_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return ended_ >= threads_ - 1 - thread_; });
      --stopped_;
    }
  }

 private:
  void run(const std::vector<range>& ranges, const std::function<void(range)>& body) {
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> crew;
    ended_ = 0;
    for (int t = 0; t < threads_; ++t) {
      crew.emplace_back([&, t] {
        thread_ = t;
        tiles_of_thread_ = 0;
        for (std::size_t i; (i = next.fetch_add(1)) < ranges.size();)
          body(ranges[i]);
        const std::lock_guard lock(mutex_);
        ++ended_;
        changed_.notify_all();
      });
    }
    for (std::thread& thread : crew)
      thread.join();
  }

  static inline thread_local int thread_ = 0, tiles_of_thread_ = 0;
  const int threads_, first_stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int stopped_ = 0, ended_ = 0;
};

/// A bitmap of f32 that tells the crew of each tile, and leaves garbage wherever it may.
void encode_visibly(const std::vector<float>& values, const encoded_view& output, stopping_crew& crew) {
  const auto elements = static_cast<std::int64_t>(values.size());
  const encoders::tile_layout layout = encoders::layout_of(parse_encoding("bitmap"), dtype::f32, elements);
  auto* const mask = static_cast<std::uint8_t*>(output.data);
  std::memset(mask, 0, layout.table_offset);
  const auto pack = [&](std::int64_t first, std::int64_t length, std::uint8_t* payload) {
    std::int64_t count = 0;
    for (std::int64_t i = first; i < first + length; ++i) {
      const float value = values[static_cast<std::size_t>(i)];
      if (to_bits(value) == 0) continue;
      mask[i / 8] |= static_cast<std::uint8_t>(1U << (i % 8));
      if (payload != nullptr) std::memcpy(payload + count * 4, &value, sizeof value);
      ++count;
    }
    if (payload != nullptr) encoders::pad_payload(payload, layout.payload_bytes(count));
    return count;
  };
  const auto count = [&](std::int64_t, std::int64_t first, std::int64_t length) {
    crew.visit();
    return pack(first, length, nullptr);
  };
  const auto write = [&](std::int64_t, std::int64_t first, std::int64_t length, std::uint8_t* payload) {
    pack(first, length, payload);
  };
  const auto both = [&](std::int64_t, std::int64_t first, std::int64_t length, std::uint8_t* payload) {
    crew.visit();
    const std::int64_t found = pack(first, length, payload);
    std::memset(payload + encoders::pad16(layout.payload_bytes(found)), 0xee, encoders::write_slack - 16);
    return found;
  };
  encoders::encode_tiles(layout, view_of(values), output, crew.context(), count, write, both);
}

TEST(sparse_threads, nobody_waits_for_a_thread_that_has_stopped) {
  const encoding e = parse_encoding("bitmap");
  for (const std::int64_t batches : {2, 3, 4, 15, 16, 17, 40}) {
    const std::vector<float> values = uneven_values(batches * batch * tile_elements - 100, flavour::mixed);
    for (const std::size_t slot_bytes : slots_for(e, values)) {
      stored alone(slot_bytes, 20000);
      const overflow_arena arena = alone.arena();
      encode(e, view_of(values), {alone.slot.data(), slot_bytes, &arena, &alone.report}, {}, {});
      alone.report.flags = 0;
      for (const int threads : {1, 2, 3, 8}) {
        for (const int first_stop : {0, 5, 8, 11, 30}) {
          SCOPED_TRACE(std::to_string(batches) + " batches, slot of " + std::to_string(slot_bytes) + ", " +
                       std::to_string(threads) + " threads, stop at " + std::to_string(first_stop));
          stored together(slot_bytes, 20000);
          const overflow_arena its_arena = together.arena();
          stopping_crew crew(threads, first_stop);
          encode_visibly(values, {together.slot.data(), slot_bytes, &its_arena, &together.report}, crew);
          expect_same(alone, together);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
