// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine/machine.hpp"

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>

#include "ptx/machine/decode.hpp"
#include "ptx/machine/lanewise.hpp"

namespace stash::ptx {
namespace {

/// After so many instructions others have a turn in any case: a warp may wait for another block.
constexpr std::uint32_t longest_turn = 1U << 16;

schedule how;
bool counts_accesses = false;
std::mutex counts_mutex;
std::map<std::string, counts> counts_of_kernels;
std::map<std::string, line_counts> lines_of_kernels;

/// Adds what ran at each instruction to that of its line.
void add_lines(const kernel& k, const std::vector<std::uint64_t>& ran_at) {
  if (ran_at.empty()) return;
  line_counts& lines = lines_of_kernels[k.facts.name];
  lines.kernel = k.facts.name;
  lines.first_line = k.code.front().line;
  lines.ran.resize(k.code.back().line - lines.first_line + 1);
  for (std::size_t i = 0; i < ran_at.size(); ++i)
    lines.ran[k.code[i].line - lines.first_line] += ran_at[i];
}

std::string text_of(extent e) {
  return "(" + std::to_string(e.x) + "," + std::to_string(e.y) + "," + std::to_string(e.z) + ")";
}

enum class stopped : std::uint8_t { turn, barrier, ended };

/// Lanes that the mask of an instruction names; all that meet name the same ones.
std::uint32_t members_of(warp& w, const instruction& i, std::uint32_t lanes) {
  if (i.kind == flow::meet_block) return all_lanes;
  const std::byte* masks = w.at<std::byte>(i.operands[i.count - 1U]);
  const auto first = static_cast<unsigned>(std::countr_zero(lanes));
  const auto members = value_at<std::uint32_t>(masks, first);
  each_lane(lanes, [&](unsigned lane) {
    if (value_at<std::uint32_t>(masks, lane) != members)
      violate(w, i, lane, "names other lanes than lane " + std::to_string(first));
    if ((members >> lane & 1) == 0) violate(w, i, lane, "is none of the lanes that it names");
  });
  return members;
}

/// The group that goes on: of those that can the one that is least far. Others at the same instruction join
/// it.
std::optional<group> next_group(warp& w) {
  std::optional<std::uint32_t> least;
  for (const group& g : w.groups) {
    if (!g.waits && (!least || g.pc < *least)) least = g.pc;
  }
  if (!least) return std::nullopt;
  group chosen{*least, 0, false};
  std::erase_if(w.groups, [&](const group& g) {
    if (g.pc != *least) return false;
    chosen.lanes |= g.lanes;
    return true;
  });
  return chosen;
}

/// Runs a warp until it comes to a barrier, has ended or has had its turn.
class turn_of {
 public:
  turn_of(warp& w, std::uint32_t instructions) : w_(w), left_(instructions) {}

  stopped run() {
    for (;;) {
      if (w_.live == 0) return stopped::ended;
      const auto found = next_group(w_);
      if (!found) stuck();
      if (const auto end = go(*found)) return *end;
    }
  }

 private:
  /// Nothing if another group is next.
  std::optional<stopped> go(group g) {
    std::uint32_t limit = ~0U;
    for (const group& other : w_.groups) {
      if (other.pc > g.pc) limit = std::min(limit, other.pc);
    }
    const std::vector<instruction>& code = w_.all->code->code;
    for (;;) {
      if (g.pc >= limit) return put_back(g, false);
      if (left_ == 0) return put_back(g, false), stopped::turn;
      --left_;
      const instruction& i = code[g.pc];
      std::uint32_t lanes = g.lanes;
      if (i.guarded) lanes &= i.guard_negated ? ~w_.predicate(i.guard) : w_.predicate(i.guard);
      ++w_.all->ran.warp_instructions;
      if (!w_.all->ran_at.empty()) ++w_.all->ran_at[g.pc];
      w_.all->ran.lane_instructions += static_cast<unsigned>(std::popcount(lanes));
      switch (i.kind) {
        case flow::plain:
          if (lanes != 0) i.run(w_, i, lanes);
          break;
        case flow::branch:
          if (lanes == 0) break;
          if (lanes != g.lanes) w_.groups.push_back({g.pc + 1, g.lanes & ~lanes, false});
          g = {i.target, lanes, false};
          // With others about, who is next has to be found out anew.
          if (!w_.groups.empty()) return put_back(g, false);
          continue;
        case flow::end:
          w_.live &= ~lanes;
          g.lanes &= ~lanes;
          if (g.lanes == 0) {
            wake();
            return std::nullopt;
          }
          break;
        case flow::pause:
          left_ = 0;
          break;
        case flow::meet:
        case flow::meet_block: {
          if (lanes == 0) break;
          if (lanes != g.lanes)
            violate(w_, i, static_cast<unsigned>(std::countr_zero(lanes)), "meets others under a condition");
          const std::uint32_t members = members_of(w_, i, lanes) & w_.live;
          if ((members & ~g.lanes) != 0) return put_back(g, true);
          if (i.run != nullptr) i.run(w_, i, lanes);
          if (i.kind == flow::meet_block) {
            ++g.pc;
            put_back(g, false);
            return stopped::barrier;
          }
          if (i.run == nullptr) w_.last_meeting = ++w_.home->now;
          break;
        }
      }
      ++g.pc;
    }
  }

  std::nullopt_t put_back(const group& g, bool waits) {
    w_.groups.push_back({g.pc, g.lanes, waits});
    return std::nullopt;
  }
  /// Those who wait may wait for lanes that have ended.
  void wake() {
    for (group& g : w_.groups)
      g.waits = false;
  }

  [[noreturn]] void stuck() {
    const group& g = w_.groups.front();
    const instruction& i = w_.all->code->code[g.pc];
    violate(w_, i, static_cast<unsigned>(std::countr_zero(g.lanes)),
            i.kind == flow::meet_block ? "is at a barrier that other lanes do not come to"
                                       : "waits for lanes that do not come");
  }

  warp& w_;
  std::uint32_t left_;
};

void write_specials(warp& w, const grid& g) {
  const auto put = [&](special which, unsigned lane, std::uint32_t value) {
    put_at(w.at<std::byte>(operand{which * bytes_of_special, false, 4}), lane, value);
  };
  for (unsigned lane = 0; lane < warp_lanes; ++lane) {
    const std::uint32_t thread = w.first_thread + lane;
    put(tid_x, lane, thread % g.threads.x);
    put(tid_y, lane, thread / g.threads.x % g.threads.y);
    put(tid_z, lane, thread / g.threads.x / g.threads.y);
    put(ntid_x, lane, g.threads.x);
    put(ntid_y, lane, g.threads.y);
    put(ntid_z, lane, g.threads.z);
    put(ctaid_x, lane, w.home->index.x);
    put(ctaid_y, lane, w.home->index.y);
    put(ctaid_z, lane, w.home->index.z);
    put(nctaid_x, lane, g.blocks.x);
    put(nctaid_y, lane, g.blocks.y);
    put(nctaid_z, lane, g.blocks.z);
    put(laneid, lane, lane);
    put(lanemask_lt, lane, (1U << lane) - 1);
    put(lanemask_le, lane, ((1U << lane) - 1) | 1U << lane);
    put(lanemask_eq, lane, 1U << lane);
    put(lanemask_ge, lane, ~((1U << lane) - 1));
    put(lanemask_gt, lane, ~(((1U << lane) - 1) | 1U << lane));
  }
}

/// Gives a block that is free its next index.
void begin(block& b, grid& g, std::uint64_t number) {
  b.index = {static_cast<std::uint32_t>(number % g.blocks.x),
             static_cast<std::uint32_t>(number / g.blocks.x % g.blocks.y),
             static_cast<std::uint32_t>(number / g.blocks.x / g.blocks.y)};
  const std::uint32_t threads = g.threads.x * g.threads.y * g.threads.z;
  const std::uint32_t warps = (threads + warp_lanes - 1) / warp_lanes;
  // Nothing of the block before; whoever uses what nobody has written gets values that no test expects.
  b.shared.assign(g.shared_bytes, std::byte{0xc3});
  b.shadow.resize(g.shared_bytes);
  b.begun = b.last_barrier = ++b.now;
  b.warps.resize(warps);
  b.warps_left = warps;
  b.warps_at_barrier = 0;
  for (std::uint32_t n = 0; n < warps; ++n) {
    warp& w = b.warps[n];
    w.all = &g;
    w.home = &b;
    w.first_thread = n * warp_lanes;
    const std::uint32_t lanes = threads - w.first_thread;
    w.live = lanes >= warp_lanes ? all_lanes : (1U << lanes) - 1;
    w.at_barrier = false;
    w.last_meeting = b.begun;
    w.groups.assign(1, {0, w.live, false});
    w.registers.resize(g.code->register_bytes / sizeof(std::uint64_t) + 1);
    write_specials(w, g);
  }
}

/// Lets warps of a block have their turns.
class block_runner {
 public:
  block_runner(block& b, std::mt19937& draw) : b_(b), draw_(draw) {}

  /// All warps, each until it waits; or, where turns are short, one of them. False if the block has ended.
  bool run() {
    if (how.turn == 0) {
      for (warp& w : b_.warps)
        turn(w, longest_turn);
    } else {
      std::vector<warp*> able;
      for (warp& w : b_.warps) {
        if (w.live != 0 && !w.at_barrier) able.push_back(&w);
      }
      if (!able.empty())
        turn(*able[draw_() % able.size()], 1 + static_cast<std::uint32_t>(draw_() % how.turn));
    }
    return b_.warps_left != 0;
  }

 private:
  void turn(warp& w, std::uint32_t instructions) {
    if (w.live == 0 || w.at_barrier) return;
    switch (turn_of(w, instructions).run()) {
      case stopped::turn:
        return;
      case stopped::barrier:
        w.at_barrier = true;
        ++b_.warps_at_barrier;
        break;
      case stopped::ended:
        --b_.warps_left;
        break;
    }
    // Warps that have ended are not waited for.
    if (b_.warps_left == 0 || b_.warps_at_barrier < b_.warps_left) return;
    b_.last_barrier = ++b_.now;
    b_.warps_at_barrier = 0;
    for (warp& other : b_.warps) {
      other.at_barrier = false;
      other.last_meeting = b_.now;
    }
  }

  block& b_;
  std::mt19937& draw_;
};

void run_grid(grid& g) {
  const std::uint64_t blocks = std::uint64_t{g.blocks.x} * g.blocks.y * g.blocks.z;
  std::vector<std::unique_ptr<block>> resident;
  std::uint64_t next = 0;
  std::mt19937 draw(how.seed);
  for (; next < blocks && resident.size() < std::max(1U, how.resident_blocks); ++next) {
    resident.push_back(std::make_unique<block>());
    begin(*resident.back(), g, next);
  }
  while (!resident.empty()) {
    const std::size_t which = how.turn == 0 ? 0 : draw() % resident.size();
    // In order where turns are long: the first block, then those after it.
    for (std::size_t n = which; n < (how.turn == 0 ? resident.size() : which + 1);) {
      if (block_runner(*resident[n], draw).run()) {
        ++n;
      } else if (next < blocks) {
        begin(*resident[n], g, next++);
        ++n;
      } else {
        resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(n));
        break;
      }
    }
  }
}

}  // namespace

void violate(const warp& w, const instruction& i, unsigned lane, const std::string& what) {
  throw violation(w.all->code->facts.name + ", block " + text_of(w.home->index) + ", thread " +
                  std::to_string(w.first_thread + lane) + ", line " + std::to_string(i.line) +
                  " of the PTX: " + what);
}

void set_schedule(const schedule& s) {
  how = s;
}
void count_accesses(bool on) {
  counts_accesses = on;
}
bool is_counting() {
  return counts_accesses;
}

struct program::state {
  std::string text;
  std::vector<std::string_view> outside;
  std::map<std::string_view, entry_text> entries;
  std::map<std::string_view, std::unique_ptr<kernel>> kernels;
};

program::program(std::string text) : state_(std::make_unique<state>()) {
  state_->text = std::move(text);
  for (const entry_text& entry : entries_of(state_->text, state_->outside))
    state_->entries.emplace(entry.name, entry);
}
program::program(program&&) noexcept = default;
program& program::operator=(program&&) noexcept = default;
program::~program() = default;

const kernel* program::find(std::string_view name) {
  if (const auto known = state_->kernels.find(name); known != state_->kernels.end())
    return known->second.get();
  const auto entry = state_->entries.find(name);
  if (entry == state_->entries.end()) return nullptr;
  const auto added = state_->kernels.emplace(entry->first, decoded(entry->second, state_->outside));
  return added.first->second.get();
}

const kernel_facts& facts_of(const kernel& k) {
  return k.facts;
}

void run(const kernel& k, extent blocks, extent threads, std::size_t dynamic_shared,
         const std::byte* parameters) {
  grid g;
  g.code = &k;
  g.blocks = blocks;
  g.threads = threads;
  g.shared_bytes = dynamic_shared == 0 ? k.facts.shared_bytes : k.dynamic_shared_offset + dynamic_shared;
  g.parameters = parameters;
  if (counts_accesses) g.ran_at.resize(k.code.size());
  g.ran.launches = 1;
  g.ran.threads = std::uint64_t{blocks.x} * blocks.y * blocks.z * threads.x * threads.y * threads.z;
  const auto keep = [&] {
    const std::lock_guard lock(counts_mutex);
    counts_of_kernels[k.facts.name] += g.ran;
    add_lines(k, g.ran_at);
  };
  try {
    run_grid(g);
  } catch (...) {
    keep();
    throw;
  }
  keep();
}

namespace {

template <class Combine>
void combine(counts& a, const counts& b, const Combine& with) {
  for (const auto part :
       {&counts::launches, &counts::threads, &counts::warp_instructions, &counts::lane_instructions,
        &counts::global_loads, &counts::global_stores, &counts::load_sectors, &counts::store_sectors,
        &counts::shared_accesses, &counts::shared_passes})
    a.*part = with(a.*part, b.*part);
}

}  // namespace

counts& counts::operator+=(const counts& other) noexcept {
  combine(*this, other, std::plus<>{});
  return *this;
}
counts& counts::operator-=(const counts& other) noexcept {
  combine(*this, other, std::minus<>{});
  return *this;
}

std::vector<named_counts> counts_so_far() {
  const std::lock_guard lock(counts_mutex);
  std::vector<named_counts> all;
  for (const auto& [name, ran] : counts_of_kernels)
    all.push_back({name, ran});
  return all;
}

std::vector<line_counts> lines_so_far() {
  const std::lock_guard lock(counts_mutex);
  std::vector<line_counts> all;
  for (const auto& [name, lines] : lines_of_kernels)
    all.push_back(lines);
  return all;
}

}  // namespace stash::ptx
