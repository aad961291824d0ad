// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine/memory.hpp"

#include <algorithm>

namespace stash::ptx {
namespace {

std::string text_of(std::uint64_t address) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (int bit = 60; bit >= 0; bit -= 4) {
    const unsigned digit = address >> bit & 15;
    if (digit != 0 || !text.empty() || bit == 0) text.push_back(digits[digit]);
  }
  return "0x" + text;
}

enum class purpose : std::uint8_t { read, write, update };

std::string named(purpose p) {
  return p == purpose::read ? "reads" : p == purpose::write ? "writes" : "updates";
}

std::byte* locate_global(warp& w, const instruction& i, unsigned lane, std::uint64_t address,
                         std::size_t bytes, purpose why) {
  grid& all = *w.all;
  for (const region& r : all.regions) {
    if (r.holds(address, bytes)) return r.host + (address - r.address);
  }
  const region found = region_of(address);
  if (!found.holds(address, bytes)) {
    std::string what =
        named(why) + " " + std::to_string(bytes) + " bytes of global memory at " + text_of(address);
    what += found.bytes == 0 ? ", where there is none"
                             : ", " + std::to_string(address - found.address) + " into " +
                                   std::to_string(found.bytes) + " bytes";
    violate(w, i, lane, what);
  }
  all.regions[all.oldest] = found;
  all.oldest = (all.oldest + 1) % all.regions.size();
  return found.host + (address - found.address);
}

/// Holds an access of shared memory against those before it. Lanes of a warp see what others of it wrote only
/// after bar.warp.sync, other warps only after a barrier.
void note(warp& w, const instruction& i, unsigned lane, std::size_t offset, std::size_t bytes, purpose why) {
  block& home = *w.home;
  const auto thread = static_cast<std::uint16_t>(w.first_thread + lane);
  const auto same_warp = [&](std::uint16_t other) { return other / warp_lanes == thread / warp_lanes; };
  const auto races = [&](std::uint16_t other, std::uint64_t when) {
    return other != thread && when >= (same_warp(other) ? w.last_meeting : home.last_barrier);
  };
  for (std::size_t n = offset; n < offset + bytes; ++n) {
    touched& t = home.shadow[n];
    const auto fail = [&](const std::string& what) {
      violate(w, i, lane, named(why) + " byte " + std::to_string(n) + " of shared memory, " + what);
    };
    if (t.written >= home.begun && races(t.writer, t.written) && why != purpose::update)
      fail("which thread " + std::to_string(t.writer) + " writes with no barrier in between");
    if (why != purpose::read) {
      if (t.read >= home.begun && races(t.reader, t.read))
        fail("which thread " + std::to_string(t.reader) + " reads with no barrier in between");
      t.written = home.now;
      t.writer = thread;
    }
    // Of several readers one from another warp than the last writer's is remembered, if there is one: writers
    // of the own warp are distinguished from those by the time alone.
    if (why != purpose::write &&
        (t.read < home.last_barrier || t.read < w.last_meeting || same_warp(t.reader))) {
      t.read = home.now;
      t.reader = thread;
    }
  }
}

std::byte* locate_shared(warp& w, const instruction& i, unsigned lane, std::uint64_t offset,
                         std::size_t bytes, purpose why) {
  block& home = *w.home;
  if (offset > home.shared.size() || bytes > home.shared.size() - offset) {
    violate(w, i, lane,
            named(why) + " " + std::to_string(bytes) + " bytes of shared memory at " + text_of(offset) +
                " of " + std::to_string(home.shared.size()));
  }
  note(w, i, lane, offset, bytes, why);
  return home.shared.data() + offset;
}

std::byte* locate(warp& w, const instruction& i, unsigned lane, space where, std::uint64_t address,
                  std::size_t bytes, purpose why) {
  if (address % bytes != 0)
    violate(w, i, lane,
            named(why) + " " + std::to_string(bytes) + " bytes at " + text_of(address) +
                ", which is not aligned");
  switch (where) {
    case space::global:
      return locate_global(w, i, lane, address, bytes, why);
    case space::shared:
      return locate_shared(w, i, lane, address, bytes, why);
    case space::parameter: {
      const std::size_t all = w.all->code->facts.parameter_bytes;
      if (why != purpose::read || address > all || bytes > all - address)
        violate(w, i, lane, named(why) + " parameters at " + text_of(address) + " of " + std::to_string(all));
      return const_cast<std::byte*>(w.all->parameters) + address;
    }
    case space::generic:
      break;
  }
  if (address >= parameter_window)
    return locate(w, i, lane, space::parameter, address - parameter_window, bytes, why);
  if (address >= shared_window) return locate(w, i, lane, space::shared, address - shared_window, bytes, why);
  return locate_global(w, i, lane, address, bytes, why);
}

/// Registers of an address: 4 bytes will do for shared memory.
std::uint64_t address_at(warp& w, const operand& o, unsigned lane) {
  const std::byte* values = w.at<std::byte>(o);
  return o.bytes == 8 ? value_at<std::uint64_t>(values, lane) : value_at<std::uint32_t>(values, lane);
}

using addresses = std::array<std::uint64_t, warp_lanes>;

/// How many sectors of 32 bytes an instruction touches.
std::uint64_t sectors(const addresses& at, std::uint32_t lanes) {
  std::vector<std::uint64_t> seen;
  seen.reserve(warp_lanes);
  each_lane(lanes, [&](unsigned lane) {
    // An access lies in one, being aligned and no larger.
    const std::uint64_t sector = at[lane] / 32;
    if (seen.empty() || (seen.back() != sector && std::find(seen.begin(), seen.end(), sector) == seen.end()))
      seen.push_back(sector);
  });
  return seen.size();
}

/// How often it goes over the banks: each gives one word at a time, and wide accesses go by half or quarter
/// of a warp.
std::uint64_t passes(const addresses& at, std::uint32_t lanes, std::size_t bytes) {
  const unsigned together = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  std::uint64_t all = 0;
  for (unsigned first = 0; first < warp_lanes; first += together) {
    std::array<std::vector<std::uint64_t>, 32> words;
    std::size_t most = 0;
    for (unsigned lane = first; lane < first + together; ++lane) {
      if ((lanes >> lane & 1) == 0) continue;
      for (std::uint64_t word = at[lane] / 4; word <= (at[lane] + bytes - 1) / 4; ++word) {
        std::vector<std::uint64_t>& bank = words[word % 32];
        if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
        most = std::max(most, bank.size());
      }
    }
    all += most;
  }
  return all;
}

void count(warp& w, space where, const addresses& at, std::uint32_t lanes, std::size_t bytes, bool load) {
  if (!is_counting() || where == space::parameter) return;
  counts& ran = w.all->ran;
  const bool in_shared =
      where == space::shared ||
      (where == space::generic && at[static_cast<unsigned>(std::countr_zero(lanes))] >= shared_window);
  if (in_shared) {
    ++ran.shared_accesses;
    ran.shared_passes += passes(at, lanes, bytes);
  } else if (load) {
    ++ran.global_loads;
    ran.load_sectors += sectors(at, lanes);
  } else {
    ++ran.global_stores;
    ran.store_sectors += sectors(at, lanes);
  }
}

template <class Value, class Register, space Where, unsigned Values>
void run_load(warp& w, const instruction& i, std::uint32_t lanes) {
  addresses at{};
  std::array<std::byte*, Values> to;
  for (unsigned n = 0; n < Values; ++n)
    to[n] = w.at<std::byte>(i.operands[n]);
  each_lane(lanes, [&](unsigned lane) {
    at[lane] = address_at(w, i.operands[Values], lane) + static_cast<std::uint64_t>(i.immediate);
  });
  count(w, Where, at, lanes, sizeof(Value) * Values, true);
  each_lane(lanes, [&](unsigned lane) {
    const std::byte* from = locate(w, i, lane, Where, at[lane], sizeof(Value) * Values, purpose::read);
    for (unsigned n = 0; n < Values; ++n)
      put_at(to[n], lane, static_cast<Register>(value_at<Value>(from, n)));
  });
}

template <class Value, class Register, space Where, unsigned Values>
void run_store(warp& w, const instruction& i, std::uint32_t lanes) {
  addresses at{};
  each_lane(lanes, [&](unsigned lane) {
    at[lane] = address_at(w, i.operands[0], lane) + static_cast<std::uint64_t>(i.immediate);
  });
  count(w, Where, at, lanes, sizeof(Value) * Values, false);
  each_lane(lanes, [&](unsigned lane) {
    std::byte* to = locate(w, i, lane, Where, at[lane], sizeof(Value) * Values, purpose::write);
    for (unsigned n = 0; n < Values; ++n)
      put_at(to, n, static_cast<Value>(value_at<Register>(w.at<std::byte>(i.operands[n + 1]), lane)));
  });
}

enum class direction : std::uint8_t { load, store };

template <direction Way, class Value, class Register, space Where>
handler of_values(unsigned values) {
  const auto pick = [&]<unsigned N>() {
    return Way == direction::load ? &run_load<Value, Register, Where, N>
                                  : &run_store<Value, Register, Where, N>;
  };
  switch (values) {
    case 1:
      return pick.template operator()<1>();
    case 2:
      return pick.template operator()<2>();
    case 4:
      return pick.template operator()<4>();
    default:
      return nullptr;
  }
}
template <direction Way, class Value, class Register>
handler of_space(const access& a) {
  switch (a.where) {
    case space::generic:
      return of_values<Way, Value, Register, space::generic>(a.values);
    case space::global:
      return of_values<Way, Value, Register, space::global>(a.values);
    case space::shared:
      return of_values<Way, Value, Register, space::shared>(a.values);
    case space::parameter:
      return of_values<Way, Value, Register, space::parameter>(a.values);
  }
  return nullptr;
}
/// Registers may be wider than values.
template <direction Way, class Value>
handler of_register(const access& a) {
  using wider = std::conditional_t<std::is_signed_v<Value>, std::int64_t, std::uint64_t>;
  using middle = std::conditional_t<std::is_signed_v<Value>, std::int32_t, std::uint32_t>;
  using small = std::conditional_t<std::is_signed_v<Value>, std::int16_t, std::uint16_t>;
  if (a.register_bytes < a.bytes) return nullptr;
  if constexpr (sizeof(Value) <= 2) {
    if (a.register_bytes == 2) return of_space<Way, Value, small>(a);
  }
  if constexpr (sizeof(Value) <= 4) {
    if (a.register_bytes == 4) return of_space<Way, Value, middle>(a);
  }
  return a.register_bytes == 8 ? of_space<Way, Value, wider>(a) : nullptr;
}
template <direction Way>
handler of_access(const access& a) {
  switch (a.bytes) {
    case 1:
      return a.is_signed ? of_register<Way, std::int8_t>(a) : of_register<Way, std::uint8_t>(a);
    case 2:
      return a.is_signed ? of_register<Way, std::int16_t>(a) : of_register<Way, std::uint16_t>(a);
    case 4:
      return a.is_signed ? of_register<Way, std::int32_t>(a) : of_register<Way, std::uint32_t>(a);
    case 8:
      return of_register<Way, std::uint64_t>(a);
    default:
      return nullptr;
  }
}

template <class T, space Where, auto F>
void run_atomic(warp& w, const instruction& i, std::uint32_t lanes) {
  each_lane(lanes, [&](unsigned lane) {
    const std::uint64_t at = address_at(w, i.operands[1], lane) + static_cast<std::uint64_t>(i.immediate);
    std::byte* to = locate(w, i, lane, Where, at, sizeof(T), purpose::update);
    const T before = value_at<T>(to, 0);
    const T value = value_at<T>(w.at<std::byte>(i.operands[2]), lane);
    const T other = i.count > 3 ? value_at<T>(w.at<std::byte>(i.operands[3]), lane) : T{};
    put_at(to, 0, F(before, value, other));
    if (i.operands[0].bytes != 0) put_at(w.at<std::byte>(i.operands[0]), lane, before);
  });
}
template <class T, auto F>
form atomic_in(space where) {
  const std::uint8_t bytes = sizeof(T);
  if (where == space::global) return {&run_atomic<T, space::global, F>, {bytes, 8, bytes, bytes}};
  if (where == space::shared) return {&run_atomic<T, space::shared, F>, {bytes, 8, bytes, bytes}};
  return {&run_atomic<T, space::generic, F>, {bytes, 8, bytes, bytes}};
}
template <class T>
form atomic_of(std::string_view op, space where) {
  if (op == "add") return atomic_in<T, [](T now, T value, T) { return static_cast<T>(now + value); }>(where);
  if (op == "min") return atomic_in<T, [](T now, T value, T) { return std::min(now, value); }>(where);
  if (op == "max") return atomic_in<T, [](T now, T value, T) { return std::max(now, value); }>(where);
  if (op == "and") return atomic_in<T, [](T now, T value, T) { return static_cast<T>(now & value); }>(where);
  if (op == "or") return atomic_in<T, [](T now, T value, T) { return static_cast<T>(now | value); }>(where);
  if (op == "exch") return atomic_in<T, [](T, T value, T) { return value; }>(where);
  if (op == "cas")
    return atomic_in<T, [](T now, T expected, T value) { return now == expected ? value : now; }>(where);
  return {};
}

}  // namespace

handler load_handler(const access& a) {
  return of_access<direction::load>(a);
}
handler store_handler(const access& a) {
  return of_access<direction::store>(a);
}

form atomic_form(std::string_view operation, std::string_view type, space where) {
  if (type == "u32" || type == "b32") return atomic_of<std::uint32_t>(operation, where);
  if (type == "s32") return atomic_of<std::int32_t>(operation, where);
  if (type == "u64" || type == "b64") return atomic_of<std::uint64_t>(operation, where);
  return {};
}

}  // namespace stash::ptx
