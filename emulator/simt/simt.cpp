// SPDX-License-Identifier: Apache-2.0
#include "simt/simt.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <boost/context/fiber.hpp>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif

#ifdef SIMT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {
namespace {

namespace context = boost::context;

constexpr std::size_t stack_bytes = 256 * 1024;  // sanitizers make frames large
constexpr std::uint32_t warp_lanes = 32;
constexpr unsigned char poison = 0xa5;

struct stack_memory {
  unsigned char* bottom = static_cast<unsigned char*>(std::aligned_alloc(4096, stack_bytes));
  unsigned char* top = nullptr;

  /// Stacks begin in different lines of the caches: were all as far from a multiple of their size, hundreds
  /// of threads would take turns with the few lines that a cache has for such addresses.
  explicit stack_memory(std::size_t number) {
    if (bottom == nullptr) throw std::bad_alloc();
    top = bottom + stack_bytes - number % 256 * 64;
  }
  ~stack_memory() { std::free(bottom); }
  stack_memory(const stack_memory&) = delete;
  stack_memory& operator=(const stack_memory&) = delete;
};

/// Stacks outlive launches: making and clearing them is most of the cost of a small one.
std::vector<std::unique_ptr<stack_memory>>& idle_stacks() {
  thread_local std::vector<std::unique_ptr<stack_memory>> stacks;
  return stacks;
}

thread_local std::size_t stacks_made = 0;

/// What boost::context asks for a stack; it is returned by the thread that owned it.
struct borrowed_stack {
  stack_memory* memory;
  context::stack_context allocate() const {
    context::stack_context s;
    s.size = static_cast<std::size_t>(memory->top - memory->bottom);
    s.sp = memory->top;
    return s;
  }
  void deallocate(context::stack_context&) const noexcept {}
};

/// What a thread waits for.
enum class waiting : std::uint8_t { nothing, block_barrier, warp_operation };

struct block_state;

struct thread_state {
  block_state* block = nullptr;
  dim3 index;
  std::uint32_t rank = 0;  ///< in the block

  context::fiber fiber;  ///< of this thread while it is suspended
  std::unique_ptr<stack_memory> stack;
  void* fake_stack = nullptr;
  bool done = false;

  waiting why = waiting::nothing;
  location where{"", 0};
  // A warp operation: what this lane brought, and what it takes away: the value of another lane, or of all
  // lanes whether theirs are not zero.
  const char* kind = "";
  std::uint32_t mask = 0;
  std::uint32_t from = 0;
  std::uint64_t value = 0, found = 0;

  std::uint32_t lane() const noexcept { return rank % warp_lanes; }
  std::uint32_t warp() const noexcept { return rank / warp_lanes; }
};

struct shared_array {
  location at;
  std::size_t bytes;
  std::unique_ptr<unsigned char, void (*)(void*)> data;
};

struct block_state {
  dim3 index;
  std::uint64_t round = 0;  ///< in which its barrier was last looked at
  std::vector<thread_state> threads;
  std::vector<shared_array> shared;
  std::unique_ptr<unsigned char, void (*)(void*)> dynamic{nullptr, &std::free};
  std::size_t alive = 0;
};

/// Memory of its own, so that what lies next to it is not ours.
std::unique_ptr<unsigned char, void (*)(void*)> poisoned(std::size_t bytes, std::size_t alignment) {
  void* data = nullptr;
  if (posix_memalign(&data, std::max<std::size_t>(alignment, sizeof(void*)),
                     std::max<std::size_t>(bytes, 1)) != 0) {
    throw std::bad_alloc();
  }
  std::memset(data, poison, bytes);
  return {static_cast<unsigned char*>(data), &std::free};
}

/// Literals of one location are mostly one.
bool same_text(const char* a, const char* b) {
  return a == b || std::strcmp(a, b) == 0;
}

std::string text(const dim3& d) {
  std::string result("(");
  result += std::to_string(d.x);
  for (const std::uint32_t other : {d.y, d.z}) {
    result += ',';
    result += std::to_string(other);
  }
  result += ')';
  return result;
}

std::string text(const location& p) {
  return std::string(p.file) + ":" + std::to_string(p.line);
}

class grid_run {
 public:
  grid_run(dim3 grid, dim3 block, std::size_t dynamic_shared, const std::function<void()>& kernel,
           const schedule& s)
      : grid_(grid),
        block_(block),
        dynamic_shared_(dynamic_shared),
        kernel_(kernel),
        schedule_(s),
        random_(s.seed) {}

  void run();

  [[noreturn]] void fail(const thread_state& t, const std::string& what) const {
    throw violation("block " + text(t.block->index) + ", thread " + text(t.index) + ": " + what);
  }
  void suspend();
  /// How often others go before the next atomic operation.
  std::uint32_t turns_lost() {
    return schedule_.threads == order::random ? static_cast<std::uint32_t>(random_() % 3) : 0;
  }

  thread_state* current = nullptr;
  dim3 grid_, block_;

 private:
  std::unique_ptr<block_state> make_block(std::uint64_t number) const;
  void start(thread_state& t);
  void resume(thread_state& t);
  /// Lets every thread that can run do so once; true if any could.
  bool round(std::vector<std::unique_ptr<block_state>>& resident);
  bool release(thread_state& t);
  bool release_barrier(block_state& b);
  bool release_warp(thread_state& t);
  [[noreturn]] void report_deadlock(const std::vector<std::unique_ptr<block_state>>& resident) const;
  template <class T>
  void arrange(std::vector<T>& list) {
    if (schedule_.threads == order::reverse) std::reverse(list.begin(), list.end());
    if (schedule_.threads == order::random) std::shuffle(list.begin(), list.end(), random_);
  }

  std::size_t dynamic_shared_;
  const std::function<void()>& kernel_;
  schedule schedule_;
  std::mt19937 random_;
  context::fiber scheduler_;  ///< while a thread runs
  std::exception_ptr failure_;
  std::uint64_t rounds_ = 0;
#ifdef SIMT_ASAN
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_bottom_ = nullptr;
  std::size_t scheduler_bytes_ = 0;
#endif
};

thread_local grid_run* running = nullptr;
std::atomic<std::size_t> launches{0};
std::atomic<std::uint64_t> launched_threads{0};
thread_local schedule next_schedule;
std::uint64_t multiprocessors_there = 132;
void (*before_launch)() = nullptr;
void (*after_launch)() = nullptr;

/// Threads that are abandoned unwind their stacks by this.
struct abandoned {};

std::unique_ptr<block_state> grid_run::make_block(std::uint64_t number) const {
  auto b = std::make_unique<block_state>();
  b->index = {static_cast<std::uint32_t>(number % grid_.x),
              static_cast<std::uint32_t>(number / grid_.x % grid_.y),
              static_cast<std::uint32_t>(number / grid_.x / grid_.y)};
  b->threads = std::vector<thread_state>(block_.count());
  b->alive = b->threads.size();
  b->dynamic = poisoned(dynamic_shared_, 128);
  for (std::uint32_t r = 0; r < b->threads.size(); ++r) {
    thread_state& t = b->threads[r];
    t.block = b.get();
    t.rank = r;
    t.index = {r % block_.x, r / block_.x % block_.y, r / block_.x / block_.y};
  }
  return b;
}

void grid_run::start(thread_state& t) {
  auto& idle = idle_stacks();
  if (idle.empty()) {
    t.stack = std::make_unique<stack_memory>(stacks_made++);
  } else {
    t.stack = std::move(idle.back());
    idle.pop_back();
  }
  t.fiber =
      context::fiber(std::allocator_arg, borrowed_stack{t.stack.get()}, [this, &t](context::fiber&& back) {
#ifdef SIMT_ASAN
        __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom_, &scheduler_bytes_);
#endif
        scheduler_ = std::move(back);
        try {
          kernel_();
        } catch (const abandoned&) {
        } catch (...) {
          if (failure_ == nullptr) failure_ = std::current_exception();
        }
        t.done = true;
#ifdef SIMT_ASAN
        __sanitizer_start_switch_fiber(nullptr, scheduler_bottom_, scheduler_bytes_);
#endif
        return std::move(scheduler_);
      });
}

void grid_run::resume(thread_state& t) {
  if (!t.fiber) start(t);
  current = &t;
#ifdef SIMT_ASAN
  __sanitizer_start_switch_fiber(&scheduler_fake_stack_, t.stack->bottom, stack_bytes);
#endif
  context::fiber left = std::move(t.fiber).resume();
#ifdef SIMT_ASAN
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
  current = nullptr;
  t.fiber = std::move(left);
  if (t.done) {
    --t.block->alive;
    idle_stacks().push_back(std::move(t.stack));
  }
}

/// From a thread back to the scheduler, until that resumes it.
void grid_run::suspend() {
#ifdef SIMT_ASAN
  thread_state& t = *current;
  __sanitizer_start_switch_fiber(&t.fake_stack, scheduler_bottom_, scheduler_bytes_);
#endif
  scheduler_ = std::move(scheduler_).resume();
#ifdef SIMT_ASAN
  __sanitizer_finish_switch_fiber(t.fake_stack, &scheduler_bottom_, &scheduler_bytes_);
#endif
  if (failure_ != nullptr) throw abandoned();
}

bool grid_run::release_barrier(block_state& b) {
  const thread_state* first = nullptr;
  for (const thread_state& t : b.threads) {
    if (t.done) continue;
    if (t.why != waiting::block_barrier) return false;
    if (first == nullptr) first = &t;
    if (!(t.where == first->where)) {
      fail(t, "waits at a barrier at " + text(t.where) + " while thread " + text(first->index) +
                  " waits at " + text(first->where));
    }
  }
  if (b.alive != b.threads.size()) {
    fail(*first, "waits at the barrier at " + text(first->where) + ", but " +
                     std::to_string(b.threads.size() - b.alive) + " threads of the block have ended");
  }
  for (thread_state& t : b.threads)
    t.why = waiting::nothing;
  return true;
}

bool grid_run::release_warp(thread_state& t) {
  thread_state* lanes[warp_lanes] = {};
  for (std::uint32_t lane = 0; lane < warp_lanes; ++lane) {
    if ((t.mask >> lane & 1) == 0) continue;
    const std::size_t rank = std::size_t{t.warp()} * warp_lanes + lane;
    if (rank >= t.block->threads.size()) {
      fail(t, std::string(t.kind) + " at " + text(t.where) + ": its mask names lane " + std::to_string(lane) +
                  ", which does not exist");
    }
    thread_state& other = t.block->threads[rank];
    if (other.done) {
      fail(t, std::string(t.kind) + " at " + text(t.where) + ": its mask names lane " + std::to_string(lane) +
                  ", which has ended");
    }
    if (other.why == waiting::nothing) return false;  // still on its way
    const bool same = other.why == waiting::warp_operation && other.mask == t.mask &&
                      same_text(other.kind, t.kind) && other.where == t.where;
    if (!same) {
      fail(t, std::string(t.kind) + " at " + text(t.where) + ": lane " + std::to_string(lane) +
                  " waits elsewhere, at " + text(other.where));
    }
    lanes[lane] = &other;
  }
  std::uint64_t value[warp_lanes] = {};
  std::uint32_t bits = 0;
  for (std::uint32_t lane = 0; lane < warp_lanes; ++lane) {
    if (lanes[lane] == nullptr) continue;
    value[lane] = lanes[lane]->value;
    bits |= value[lane] != 0 ? 1U << lane : 0;
  }
  for (thread_state* lane : lanes) {
    if (lane == nullptr) continue;
    lane->found = lane->from < warp_lanes ? value[lane->from] : bits;
    lane->why = waiting::nothing;
  }
  return true;
}

bool grid_run::release(thread_state& t) {
  if (t.why == waiting::warp_operation) return release_warp(t);
  // A barrier is left by all threads of a block at once, or in this round by none.
  if (std::exchange(t.block->round, rounds_) == rounds_) return false;
  return release_barrier(*t.block);
}

bool grid_run::round(std::vector<std::unique_ptr<block_state>>& resident) {
  std::vector<thread_state*> threads;
  for (const auto& b : resident) {
    for (thread_state& t : b->threads)
      threads.push_back(&t);
  }
  arrange(threads);
  ++rounds_;
  bool any = false;
  for (thread_state* t : threads) {
    if (t->done || t->why != waiting::nothing) continue;
    any = true;
    resume(*t);
    if (failure_ != nullptr) return true;
  }
  for (thread_state* t : threads) {
    if (!t->done && t->why != waiting::nothing) any = release(*t) || any;
  }
  return any;
}

void grid_run::report_deadlock(const std::vector<std::unique_ptr<block_state>>& resident) const {
  for (const auto& b : resident) {
    for (const thread_state& t : b->threads) {
      if (!t.done) fail(t, "waits at " + text(t.where) + " for threads that never come");
    }
  }
  throw violation("a launch stands still");
}

void grid_run::run() {
  const std::uint64_t all = grid_.count();
  const std::uint64_t first =
      schedule_.last_blocks == 0 || schedule_.last_blocks > all ? 0 : all - schedule_.last_blocks;
  std::vector<std::uint64_t> numbers(all - first);
  std::iota(numbers.begin(), numbers.end(), first);
  arrange(numbers);
  std::vector<std::unique_ptr<block_state>> resident;
  std::size_t next = 0;
  while (next < numbers.size() || !resident.empty()) {
    while (next < numbers.size() && resident.size() < std::max(1U, schedule_.resident_blocks))
      resident.push_back(make_block(numbers[next++]));
    try {
      if (!round(resident)) report_deadlock(resident);
    } catch (...) {
      if (failure_ == nullptr) failure_ = std::current_exception();
    }
    if (failure_ != nullptr) {
      // Threads that have begun unwind their stacks; destructors of theirs run.
      for (const auto& b : resident) {
        for (thread_state& t : b->threads) {
          if (!t.done && t.fiber) resume(t);
        }
      }
      std::rethrow_exception(failure_);
    }
    std::erase_if(resident, [](const auto& b) { return b->alive == 0; });
  }
}

grid_run& run_of_caller() {
  if (running == nullptr || running->current == nullptr)
    throw violation("a device function was called outside a launch");
  return *running;
}

void wait(waiting why, location at) {
  grid_run& run = run_of_caller();
  run.current->why = why;
  run.current->where = at;
  run.suspend();
}

/// Meets the lanes of the mask and gives what lane `from` brought; for no lane of a warp, a bit for each that
/// brought something else than zero.
std::uint64_t meet(std::uint32_t mask, std::uint64_t value, std::uint32_t from, const char* kind,
                   location at) {
  thread_state& t = *run_of_caller().current;
  if ((mask >> t.lane() & 1) == 0) {
    running->fail(t, std::string(kind) + " at " + text(at) + ": lane " + std::to_string(t.lane()) +
                         " is not in its own mask");
  }
  t.kind = kind;
  t.mask = mask;
  t.value = value;
  t.from = from;
  wait(waiting::warp_operation, at);
  return t.found;
}

}  // namespace

void set_schedule(const schedule& s) {
  next_schedule = s;
}

std::uint64_t multiprocessors() noexcept {
  return multiprocessors_there;
}

void set_multiprocessors(std::uint64_t count) {
  multiprocessors_there = count;
}

std::size_t launches_so_far() {
  return launches;
}

std::uint64_t threads_of_last_launch() {
  return launched_threads;
}

void around_launches(void (*before)(), void (*after)()) {
  before_launch = before;
  after_launch = after;
}

void launch(dim3 grid, dim3 block, std::size_t dynamic_shared, const std::function<void()>& kernel) {
  ++launches;
  launched_threads = grid.count() * block.count();
  if (running != nullptr) throw violation("a launch inside a launch");
  if (grid.count() == 0 || block.count() == 0 || block.count() > 1024) {
    throw violation("launch: expected a grid and 1 to 1024 threads in a block, got " + text(grid) +
                    " blocks of " + text(block));
  }
  grid_run run(grid, block, dynamic_shared, kernel, next_schedule);
  struct scope {
    ~scope() {
      running = nullptr;
      if (after_launch != nullptr) after_launch();
    }
  } const end;
  if (before_launch != nullptr) before_launch();
  running = &run;
  run.run();
}

dim3 thread_index() {
  return run_of_caller().current->index;
}
dim3 block_index() {
  return run_of_caller().current->block->index;
}
dim3 block_size() {
  return run_of_caller().block_;
}
dim3 grid_size() {
  return run_of_caller().grid_;
}

void sync_block(location at) {
  wait(waiting::block_barrier, at);
}

void sync_warp(std::uint32_t mask, location at) {
  meet(mask, 0, warp_lanes, "sync_warp", at);
}

std::uint32_t ballot(std::uint32_t mask, bool predicate, location at) {
  return static_cast<std::uint32_t>(meet(mask, predicate ? 1 : 0, warp_lanes, "ballot", at));
}

std::uint64_t exchange(std::uint32_t mask, std::uint64_t value, std::uint32_t from, const char* kind,
                       location at) {
  const std::uint64_t met = meet(mask, value, from, kind, at);
  if (from >= warp_lanes) return value;
  if ((mask >> from & 1) == 0) {
    running->fail(*running->current, std::string(kind) + " at " + text(at) + ": reads lane " +
                                         std::to_string(from) + ", which is not in the mask");
  }
  return met;
}

void yield() {
  run_of_caller().suspend();
}

void interleave() {
  grid_run& run = run_of_caller();
  for (std::uint32_t turns = run.turns_lost(); turns > 0; --turns)
    run.suspend();
}

void* static_shared(std::size_t bytes, std::size_t alignment, location at) {
  block_state& b = *run_of_caller().current->block;
  for (const shared_array& array : b.shared) {
    if (array.at == at && array.bytes == bytes) return array.data.get();
  }
  b.shared.push_back({at, bytes, poisoned(bytes, alignment)});
  return b.shared.back().data.get();
}

void* dynamic_shared() {
  return run_of_caller().current->block->dynamic.get();
}

}  // namespace simt
