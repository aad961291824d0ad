// SPDX-License-Identifier: Apache-2.0
// Every f32 pattern, or every n-th, through encode() and decode() of the casts, against the reference of
// docs/format.md and for every instruction set of this machine. No list of answers is stored: along ascending
// patterns the code of a rounding format changes at few points, and the reference says where by bisection.

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "format/reference.hpp"
#include "stash/cpu.hpp"
#include "stash/error.hpp"

namespace stash {
namespace {

/// Neighbouring f32 patterns, `last` included, that have the same code and come back as the same f32.
struct code_range {
  std::uint32_t first, last, code, decoded;
};

constexpr std::uint32_t sign_bit = 0x80000000, infinity = 0x7f800000, largest_nan = 0x7fffffff;
constexpr std::size_t mx_group = 32;

/// A cast, and for an MX format the scale that every group is held at by its first element.
struct cast_under_test {
  std::string name;
  encoding how;
  int bits = 0;                    ///< of an element
  bool scaled = false;             ///< an MX format
  std::uint32_t pin = 0;           ///< scaled: f32 bits of every group's first element
  std::uint32_t scale = 0;         ///< scaled: the scale byte
  std::uint32_t below = infinity;  ///< finite magnitudes under test are smaller than this pattern
  bool nan = true;  ///< NaN is under test (in groups without a NaN of their own it would change the scale)
};

cast_under_test make_cast(const std::string& name, underflow_rule underflow) {
  cast_under_test c{name + (underflow == underflow_rule::to_zero ? " to_zero" : " keep_nonzero"),
                    parse_encoding(name)};
  c.how.underflow = underflow;
  c.bits = reference::code_bits(c.how.values);
  return c;
}

std::vector<cast_under_test> casts() {
  constexpr underflow_rule rules[] = {underflow_rule::to_zero, underflow_rule::keep_nonzero};
  std::vector<cast_under_test> all;
  for (const underflow_rule underflow : rules) {
    for (const value_format_info& row : value_formats)
      if (!row.scaled) all.push_back(make_cast(std::string(row.name), underflow));
  }
  for (const underflow_rule underflow : rules) {
    for (const value_format_info& row : value_formats) {
      if (!row.scaled) continue;
      cast_under_test c = make_cast(std::string(row.name), underflow);
      const int emax = reference::emax_of(c.how.values);
      const std::string unscaled = c.name;
      c.scaled = true;
      c.nan = c.bits == 8;
      // The smallest scale there is, one, and the largest that a finite value asks for.
      for (const int exponent : {-127, 0, 127 - emax}) {
        c.name = unscaled + ", scale 2^" + std::to_string(exponent);
        c.pin = std::bit_cast<std::uint32_t>(std::ldexp(1.0F, exponent + emax));
        c.scale = static_cast<std::uint32_t>(exponent + 127);
        c.below = std::bit_cast<std::uint32_t>(std::ldexp(1.0F, exponent + emax + 1));
        all.push_back(c);
      }
    }
  }
  return all;
}

/// What the reference makes of one pattern.
code_range by_reference(const cast_under_test& c, std::uint32_t pattern) {
  if (!c.scaled) {
    const std::uint32_t code = reference::narrow(c.how.values, c.how.underflow, pattern);
    return {pattern, pattern, code, reference::widen(c.how.values, code)};
  }
  const reference::tensor group{dtype::f32, {c.pin, pattern}};
  const std::vector<std::uint8_t> bytes = reference::encode(c.how, group).bytes;
  if (bytes[0] != c.scale) throw std::logic_error(c.name + ": the scale is not held");
  const std::uint32_t elements = bytes[16] | static_cast<std::uint32_t>(bytes[17]) << 8;
  return {pattern, pattern, elements >> c.bits & ((1U << c.bits) - 1),
          reference::decode(c.how, group).bits[1]};
}

/// Appends the ranges of codes of [first.first, last.first], along which codes only rise or only fall.
void bisect(const cast_under_test& c, const code_range& first, const code_range& last,
            std::vector<code_range>& out) {
  if (first.code == last.code) {
    if (out.empty() || out.back().code != first.code || out.back().last + 1 != first.first)
      out.push_back(first);
    out.back().last = last.first;
    return;
  }
  const std::uint32_t middle = first.first + (last.first - first.first) / 2;
  bisect(c, first, by_reference(c, middle), out);
  bisect(c, by_reference(c, middle + 1), last, out);
}

std::vector<code_range> code_ranges(const cast_under_test& c) {
  std::vector<code_range> out;
  for (const std::uint32_t sign : {0U, sign_bit}) {
    const auto range = [&](std::uint32_t first, std::uint32_t last) {
      bisect(c, by_reference(c, sign | first), by_reference(c, sign | last), out);
    };
    range(0, c.below - 1);
    range(infinity, infinity);
    if (c.nan) range(infinity + 1, largest_nan);
  }
  return out;
}

/// The patterns of the ranges of codes in order: all of them, or every n-th and four at each end of a range
/// of codes.
class pattern_stream {
 public:
  pattern_stream(const std::vector<code_range>& all, std::uint32_t every) : all_(all), every_(every) {}

  /// Fills the arrays with up to `most` patterns and what is expected of them; 0 at the end.
  std::size_t next(std::size_t most, std::uint32_t* patterns, std::uint32_t* codes, std::uint32_t* decoded) {
    std::size_t count = 0;
    while (count < most && at_ < all_.size()) {
      const code_range& s = all_[at_];
      const std::size_t begin = count;
      count += every_ == 1 ? take_all(s, most - count, patterns + count)
                           : take_sampled(s, most - count, patterns + count);
      std::fill(codes + begin, codes + count, s.code);
      std::fill(decoded + begin, decoded + count, s.decoded);
      if (offset_ == length(s)) {
        ++at_;
        offset_ = 0;
      }
    }
    return count;
  }

 private:
  static std::uint64_t length(const code_range& s) { return std::uint64_t{s.last} - s.first + 1; }

  std::size_t take_all(const code_range& s, std::size_t most, std::uint32_t* patterns) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(most, length(s) - offset_));
    std::iota(patterns, patterns + count, s.first + static_cast<std::uint32_t>(offset_));
    offset_ += count;
    return count;
  }

  std::size_t take_sampled(const code_range& s, std::size_t most, std::uint32_t* patterns) {
    std::size_t count = 0;
    for (; count < most && offset_ < length(s); offset_ = following(s))
      patterns[count++] = s.first + static_cast<std::uint32_t>(offset_);
    return count;
  }

  std::uint64_t following(const code_range& s) const {
    const std::uint64_t next = offset_ + 1;
    if (next < 4 || next + 4 >= length(s)) return next;
    const std::uint64_t sampled = (s.first + next + every_ - 1) / every_ * every_ - s.first;
    return std::min(sampled, length(s) - 4);
  }

  const std::vector<code_range>& all_;
  std::uint64_t every_;
  std::size_t at_ = 0;
  std::uint64_t offset_ = 0;
};

std::size_t pad16(std::size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

/// The bytes of a cast from its codes, by docs/format.md: a string of bits, for fp10 with two zeros after
/// every three codes; for the MX formats the plane of scales first.
void pack(const cast_under_test& c, const std::uint32_t* codes, std::size_t count,
          std::vector<std::uint8_t>& bytes) {
  const std::size_t scales = c.scaled ? (count + mx_group - 1) / mx_group : 0;
  const std::size_t elements =
      c.bits == 10 ? (count + 2) / 3 * 4 : (count * static_cast<std::size_t>(c.bits) + 7) / 8;
  bytes.assign(pad16(scales) + pad16(elements), 0);
  std::fill_n(bytes.begin(), scales, static_cast<std::uint8_t>(c.scale));
  std::uint8_t* to = bytes.data() + pad16(scales);
  if (c.bits == 8) {
    std::transform(codes, codes + count, to,
                   [](std::uint32_t code) { return static_cast<std::uint8_t>(code); });
    return;
  }
  std::uint64_t waiting = 0;
  int have = 0;
  for (std::size_t i = 0; i < count; ++i) {
    waiting |= std::uint64_t{codes[i]} << have;
    have += c.bits + (c.bits == 10 && i % 3 == 2 ? 2 : 0);
    for (; have >= 8; have -= 8, waiting >>= 8)
      *to++ = static_cast<std::uint8_t>(waiting);
  }
  if (have > 0) *to = static_cast<std::uint8_t>(waiting);
}

/// One call's worth of patterns, and memory for what the library makes of them.
struct block {
  static constexpr std::size_t groups = 1536, elements = groups * mx_group;
  std::vector<std::uint32_t> patterns = std::vector<std::uint32_t>(elements), codes = patterns,
                             decoded = patterns, got = patterns;
  std::vector<std::uint8_t> stored, expected;

  /// Takes the next patterns, an MX format's after the pin of their group; false at the end.
  bool fill(const cast_under_test& c, const code_range& pin, pattern_stream& stream) {
    count = sampled = 0;
    if (!c.scaled) {
      count = sampled = stream.next(elements, patterns.data(), codes.data(), decoded.data());
      return count != 0;
    }
    while (count < elements) {
      patterns[count] = c.pin;
      codes[count] = pin.code;
      decoded[count] = pin.decoded;
      const std::size_t to = count + 1;
      const std::size_t taken = stream.next(mx_group - 1, &patterns[to], &codes[to], &decoded[to]);
      if (taken == 0) break;
      sampled += taken;
      count = to + taken;
    }
    return count != 0;
  }

  std::size_t count = 0, sampled = 0;
};

[[noreturn]] void report_difference(const cast_under_test& c, const block& b) {
  const auto at = static_cast<std::size_t>(
      std::mismatch(b.decoded.begin(), b.decoded.begin() + static_cast<std::ptrdiff_t>(b.count),
                    b.got.begin())
          .first -
      b.decoded.begin());
  if (at < b.count) {
    std::printf("%s: pattern %08x: code %x stands for %08x, got %08x\n", c.name.c_str(), b.patterns[at],
                b.codes[at], b.decoded[at], b.got[at]);
  }
  const auto byte = static_cast<std::size_t>(
      std::mismatch(b.expected.begin(), b.expected.end(), b.stored.begin()).first - b.expected.begin());
  if (byte < b.expected.size()) {
    std::printf("%s: patterns %08x to %08x: byte %zu: expected %02x, got %02x\n", c.name.c_str(),
                b.patterns[0], b.patterns[b.count - 1], byte, b.expected[byte], b.stored[byte]);
  }
  std::exit(1);
}

/// Encodes, compares the bytes, decodes them and compares the values; returns how many patterns there were.
std::uint64_t check_library(const cast_under_test& c, const std::vector<code_range>& all, std::uint32_t every,
                            block& b) {
  pattern_stream stream(all, every);
  const code_range pin = c.scaled ? by_reference(c, c.pin) : code_range{};
  std::uint64_t patterns = 0;
  while (b.fill(c, pin, stream)) {
    const auto count = static_cast<std::int64_t>(b.count);
    pack(c, b.codes.data(), b.count, b.expected);
    // What an earlier block left must not pass for an answer.
    b.stored.assign(encoded_bytes_bound(c.how, dtype::f32, count), 0xa5);
    std::fill(b.got.begin(), b.got.end(), 0xa5a5a5a5);
    encode_report report;
    encode(c.how, {b.patterns.data(), dtype::f32, memory_space::host, {count}},
           {b.stored.data(), b.stored.size(), nullptr, &report}, {}, {});
    decode({c.how, dtype::f32, {count}, {b.stored.data(), b.stored.size(), nullptr, &report}},
           {b.got.data(), dtype::f32, memory_space::host, {count}}, {}, {});
    if (b.stored != b.expected || report.status != status_ok ||
        std::memcmp(b.got.data(), b.decoded.data(), b.count * sizeof(std::uint32_t)) != 0) {
      report_difference(c, b);
    }
    patterns += b.sampled;
  }
  return patterns;
}

/// The ranges of codes rest on codes that only rise with the magnitude; this asks the reference about each
/// pattern. For casts that are not scaled.
std::uint64_t check_code_ranges(const cast_under_test& c, const std::vector<code_range>& all,
                                std::uint32_t every, block& b) {
  pattern_stream stream(all, every);
  std::uint64_t patterns = 0;
  while (const std::size_t count =
             stream.next(block::elements, b.patterns.data(), b.codes.data(), b.decoded.data())) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t code = reference::narrow(c.how.values, c.how.underflow, b.patterns[i]);
      if (code == b.codes[i]) continue;
      std::printf("%s: pattern %08x lies in a range of code %x, but has %x\n", c.name.c_str(), b.patterns[i],
                  b.codes[i], code);
      std::exit(1);
    }
    patterns += count;
  }
  return patterns;
}

struct options {
  std::uint32_t every = 1;
  bool reference = false, list = false;
  std::string cast;
  std::vector<std::string> targets;
};

[[noreturn]] void usage(int status) {
  std::puts(
      "usage: format_casts [--every N] [--cast NAME] [--target NAME]... [--reference]\n"
      "       format_casts --list\n"
      "  --list         only prints the names of the casts\n"
      "  --cast NAME    only this one (default: each)\n"
      "  --every N      every N-th f32 pattern and those around each change of a code (default 1: all)\n"
      "  --target NAME  only this instruction set; none: only what --reference does (default: each)\n"
      "  --reference    of the casts without scales, ask the reference about each pattern too");
  std::exit(status);
}

options parse(int argc, char** argv) {
  options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help") usage(0);
    if (argument == "--reference") {
      o.reference = true;
    } else if (argument == "--list") {
      o.list = true;
    } else if (argument == "--cast" && i + 1 < argc) {
      o.cast = argv[++i];
    } else if (argument == "--every" && i + 1 < argc) {
      o.every = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    } else if (argument == "--target" && i + 1 < argc) {
      o.targets.emplace_back(argv[++i]);
    } else {
      usage(2);
    }
  }
  if (o.every == 0) usage(2);
  if (o.targets.empty()) o.targets = cpu_targets();
  std::erase(o.targets, "none");
  return o;
}

/// One line of the result: the check, its patterns, and its seconds.
void timed(const cast_under_test& c, const std::string& by, const std::function<std::uint64_t()>& check) {
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t patterns = check();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s, %s: %llu patterns as expected, %.1f s\n", c.name.c_str(), by.c_str(),
              static_cast<unsigned long long>(patterns), seconds);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const options o = parse(argc, argv);
  block b;
  bool known = false;
  for (const cast_under_test& c : casts()) {
    if (o.list) std::puts(c.name.c_str());
    if (o.list || (!o.cast.empty() && o.cast != c.name)) continue;
    known = true;
    const std::vector<code_range> all = code_ranges(c);
    if (o.reference && !c.scaled)
      timed(c, "reference", [&] { return check_code_ranges(c, all, o.every, b); });
    for (const std::string& target : o.targets) {
      set_cpu_target(target);
      timed(c, target, [&] { return check_library(c, all, o.every, b); });
    }
  }
  if (!known && !o.list) usage(2);
  return 0;
}

}  // namespace
}  // namespace stash

int main(int argc, char** argv) {
  try {
    return stash::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "format_casts: %s\n", e.what());
    return 1;
  }
}
