// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine/lanewise.hpp"

namespace stash::ptx {
namespace {

using word = std::uint32_t;
using long_word = std::uint64_t;

/// Four bytes of eight, one for each digit of four bits, whose highest one asks for the byte's sign instead.
word picked_bytes(word a, word b, word which) {
  const long_word all = a | long_word{b} << 32;
  word picked = 0;
  for (unsigned n = 0; n < 4; ++n) {
    const word digit = which >> (4 * n);
    word byte = static_cast<word>(all >> (8 * (digit & 7))) & 0xff;
    if ((digit & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    picked |= byte << (8 * n);
  }
  return picked;
}

/// Bit n of the table: what three bits become that are n, the first one being the highest of its three.
word logic_of_three(word a, word b, word c, word table) {
  word result = 0;
  for (unsigned n = 0; n < 8; ++n) {
    if ((table >> n & 1) == 0) continue;
    result |= ((n & 4) != 0 ? a : ~a) & ((n & 2) != 0 ? b : ~b) & ((n & 1) != 0 ? c : ~c);
  }
  return result;
}

template <class T>
T inserted(T from, T into, word position, word length) {
  position &= 0xff;
  length &= 0xff;
  T result = into;
  for (word n = 0; n < length && position + n < 8 * sizeof(T); ++n) {
    const T bit = T{1} << (position + n);
    result = (result & ~bit) | ((from >> n & 1) != 0 ? bit : 0);
  }
  return result;
}
template <class T>
T extracted(T from, word position, word length) {
  position &= 0xff;
  length &= 0xff;
  T result = 0;
  for (word n = 0; n < length && n < 8 * sizeof(T) && position + n < 8 * sizeof(T); ++n)
    result |= (from >> (position + n) & 1) << n;
  return result;
}

word reversed(word value) {
  word result = 0;
  for (unsigned n = 0; n < 32; ++n)
    result |= (value >> n & 1) << (31 - n);
  return result;
}

word byte_products(word a, word b, word added) {
  for (unsigned bit = 0; bit < 32; bit += 8)
    added += (a >> bit & 0xff) * (b >> bit & 0xff);
  return added;
}

/// The funnel: bits of {high, low}, moved by no more than a word.
word shifted_left(word low, word high, word by) {
  return static_cast<word>((long_word{high} << 32 | low) << (by & 31) >> 32);
}
word shifted_right(word low, word high, word by) {
  return static_cast<word>((long_word{high} << 32 | low) >> (by & 31));
}

}  // namespace

form bits_form(const opcode_words& opcode) {
  std::string name;
  for (const std::string_view part : opcode)
    name.append(name.empty() ? "" : ".").append(part);
  if (name == "prmt.b32")
    return form_of<[](word a, word b, word which) { return picked_bytes(a, b, which); }>();
  if (name == "lop3.b32")
    return form_of<[](word a, word b, word c, word table) { return logic_of_three(a, b, c, table); }>();
  if (name == "shf.l.wrap.b32")
    return form_of<[](word low, word high, word by) { return shifted_left(low, high, by); }>();
  if (name == "shf.r.wrap.b32")
    return form_of<[](word low, word high, word by) { return shifted_right(low, high, by); }>();
  if (name == "bfi.b32")
    return form_of<[](word f, word t, word at, word length) { return inserted(f, t, at, length); }>();
  if (name == "bfi.b64")
    return form_of<[](long_word f, long_word t, word at, word length) {
      return inserted(f, t, at, length);
    }>();
  if (name == "bfe.u32")
    return form_of<[](word f, word at, word length) { return extracted(f, at, length); }>();
  if (name == "bfe.u64")
    return form_of<[](long_word f, word at, word length) { return extracted(f, at, length); }>();
  if (name == "popc.b32") return form_of<[](word a) { return static_cast<word>(std::popcount(a)); }>();
  if (name == "popc.b64") return form_of<[](long_word a) { return static_cast<word>(std::popcount(a)); }>();
  if (name == "clz.b32") return form_of<[](word a) { return static_cast<word>(std::countl_zero(a)); }>();
  if (name == "clz.b64") return form_of<[](long_word a) { return static_cast<word>(std::countl_zero(a)); }>();
  if (name == "brev.b32") return form_of<[](word a) { return reversed(a); }>();
  // The highest bit that is set: where it is, or how far it is from the top; all ones if there is none.
  if (name == "bfind.u32")
    return form_of<[](word a) { return 31U - static_cast<word>(std::countl_zero(a)); }>();
  if (name == "bfind.shiftamt.u32")
    return form_of<[](word a) { return a == 0 ? ~0U : static_cast<word>(std::countl_zero(a)); }>();
  if (name == "dp4a.u32.u32") return form_of<[](word a, word b, word c) { return byte_products(a, b, c); }>();
  return {};
}

}  // namespace stash::ptx
