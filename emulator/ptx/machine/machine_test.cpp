// SPDX-License-Identifier: Apache-2.0
// The machine that runs PTX: what instructions do at their edges, lanes that go different ways, blocks that
// wait for each other, and each thing that a launch must not do.

#include "ptx/machine/machine.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "ptx/machine/device_memory.hpp"

namespace stash::ptx {
namespace {

using word = std::uint32_t;

constexpr std::size_t words_of_memory = 4096;

/// A kernel with a pointer as its parameter, run once. Its body finds the pointer in %rd1, the thread in %r1
/// and, for words of its own, memory of 32 bytes after the pointer in %rd2.
class machine : public ::testing::Test {
 protected:
  machine() : memory_(allocate_device(words_of_memory * sizeof(word))) {}
  ~machine() override {
    release(memory_);
    set_schedule({});
    count_accesses(false);
  }
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  word* words() { return reinterpret_cast<word*>(region_of(reinterpret_cast<std::uint64_t>(memory_)).host); }

  static std::string text_of(const std::string& body) {
    return ".version 9.0\n.target sm_90\n.address_size 64\n"
           ".visible .entry k(\n\t.param .u64 k_param_0\n)\n.maxntid 256, 1, 1\n{\n"
           "\t.reg .pred \t%p<9>;\n\t.reg .b16 \t%rs<20>;\n\t.reg .b32 \t%r<40>;\n\t.reg .f32 \t%f<9>;\n"
           "\t.reg .b64 \t%rd<20>;\n"
           "\tld.param.u64 \t%rd1, [k_param_0];\n\tmov.u32 \t%r1, %tid.x;\n\tmul.wide.u32 \t%rd2, %r1, 32;\n"
           "\tadd.s64 \t%rd2, %rd1, %rd2;\n" +
           body + "\n\tret;\n}\n";
  }

  void run_body(const std::string& body, word threads = 1, word blocks = 1) {
    program p(text_of(body));
    const kernel* k = p.find("k");
    ASSERT_NE(k, nullptr);
    EXPECT_EQ(facts_of(*k).parameter_bytes, sizeof(void*));
    EXPECT_EQ(facts_of(*k).most_threads, 256U);
    EXPECT_EQ(facts_of(*k).architecture, 90);
    run(*k, {blocks}, {threads}, 0, reinterpret_cast<const std::byte*>(&memory_));
  }

  /// What a violation says, or nothing.
  std::string fault_of(const std::string& body, word threads = 1, word blocks = 1) {
    try {
      run_body(body, threads, blocks);
    } catch (const violation& v) {
      return v.what();
    }
    return {};
  }

  /// The word that an instruction on %r10 makes of words in %r11, %r12, %r13.
  word made_of(const std::string& instruction, word a, word b = 0, word c = 0) {
    std::fill_n(words(), 8, 0xdeadbeefU);
    const word inputs[] = {a, b, c};
    std::copy_n(inputs, 3, words() + 1);
    run_body(
        "ld.global.u32 %r11, [%rd1+4];\nld.global.u32 %r12, [%rd1+8];\nld.global.u32 %r13, [%rd1+12];\n"
        "mov.b32 %f1, %r11;\nmov.b32 %f2, %r12;\nmov.b32 %f3, %r13;\nmov.b32 {%rs11, %rs15}, %r11;\n" +
        instruction + "\nst.global.u32 [%rd1], %r10;");
    return words()[0];
  }

  void* memory_;
};

word bits(float value) {
  word b;
  std::memcpy(&b, &value, sizeof(b));
  return b;
}

TEST_F(machine, integers_wrap_and_shifts_have_an_end) {
  EXPECT_EQ(made_of("add.s32 %r10, %r11, %r12;", 0x7fffffff, 1), 0x80000000U);
  EXPECT_EQ(made_of("mul.lo.s32 %r10, %r11, %r12;", 0x10001, 0x10001), 0x20001U);
  EXPECT_EQ(made_of("mul.hi.u32 %r10, %r11, %r12;", 0xffffffff, 0xffffffff), 0xfffffffeU);
  EXPECT_EQ(
      made_of("cvt.s64.s32 %rd9, %r11;\nmul.hi.s64 %rd9, %rd9, %rd9;\ncvt.u32.u64 %r10, %rd9;", 0x80000000),
      0U);
  EXPECT_EQ(
      made_of("cvt.s64.s32 %rd9, %r11;\nmul.hi.s64 %rd9, %rd9, 5;\ncvt.u32.u64 %r10, %rd9;", 0x80000000),
      0xffffffffU);
  EXPECT_EQ(made_of("mad.lo.s32 %r10, %r11, %r12, -3;", 5, 7), 32U);
  EXPECT_EQ(made_of("shl.b32 %r10, %r11, %r12;", 3, 31), 0x80000000U);
  EXPECT_EQ(made_of("shl.b32 %r10, %r11, %r12;", 3, 32), 0U);
  EXPECT_EQ(made_of("shr.u32 %r10, %r11, %r12;", 0x80000000, 32), 0U);
  EXPECT_EQ(made_of("shr.s32 %r10, %r11, %r12;", 0x80000000, 32), 0xffffffffU);
  EXPECT_EQ(made_of("shr.s32 %r10, %r11, 4;", 0x80000000), 0xf8000000U);
  EXPECT_EQ(made_of("min.s32 %r10, %r11, %r12;", 0xffffffff, 1), 0xffffffffU);
  EXPECT_EQ(made_of("min.u32 %r10, %r11, %r12;", 0xffffffff, 1), 1U);
  EXPECT_EQ(made_of("div.u32 %r10, %r11, %r12;", 100, 7), 14U);
  EXPECT_EQ(made_of("div.s32 %r10, %r11, %r12;", 0x80000000, 0xffffffff), 0x80000000U);
  EXPECT_EQ(made_of("min.u16x2 %r10, %r11, %r12;", 0x0001ffff, 0xffff0002), 0x00010002U);
  EXPECT_EQ(made_of("max.u16x2 %r10, %r11, %r12;", 0x0001ffff, 0xffff0002), 0xffffffffU);
  EXPECT_EQ(made_of("cvt.u32.u16 %r10, %rs11;", 0x1234fedc), 0xfedcU);
  EXPECT_EQ(made_of("cvt.s32.s16 %r10, %rs11;", 0x1234fedc), 0xfffffedcU);
  EXPECT_EQ(made_of("cvt.u32.u8 %r10, %r11;", 0x1234fedc), 0xdcU);
  EXPECT_EQ(made_of("mul.wide.u32 %rd9, %r11, %r12;\nshr.u64 %rd9, %rd9, 32;\ncvt.u32.u64 %r10, %rd9;",
                    0xffffffff, 0xffffffff),
            0xfffffffeU);
}

TEST_F(machine, bits_are_cut_and_put_together) {
  EXPECT_EQ(made_of("prmt.b32 %r10, %r11, %r12, 0x7520;", 0x33221100, 0x77665544), 0x77552200U);
  // The highest bit of a digit asks for the sign.
  EXPECT_EQ(made_of("prmt.b32 %r10, %r11, 0, 0xba98;", 0x80017f80), 0xff0000ffU);
  EXPECT_EQ(made_of("lop3.b32 %r10, %r11, %r12, %r13, 0xca;", 0xff00ff00, 0x12345678, 0x9abcdef0),
            0x12bc56f0U);
  EXPECT_EQ(made_of("bfi.b32 %r10, %r11, %r12, 8, 4;", 0xff, 0), 0xf00U);
  EXPECT_EQ(made_of("bfi.b32 %r10, %r11, %r12, 30, 8;", 0xff, 0), 0xc0000000U);
  EXPECT_EQ(made_of("bfe.u32 %r10, %r11, 28, 8;", 0xabcdef01), 0xaU);
  EXPECT_EQ(made_of("shf.r.wrap.b32 %r10, %r11, %r12, 36;", 0x12345678, 0x9), 0x91234567U);
  EXPECT_EQ(made_of("shf.l.wrap.b32 %r10, %r11, %r12, 4;", 0x12345678, 0x9), 0x91U);
  EXPECT_EQ(made_of("popc.b32 %r10, %r11;", 0xf0f0), 8U);
  EXPECT_EQ(made_of("brev.b32 %r10, %r11;", 0x80000001), 0x80000001U);
  EXPECT_EQ(made_of("brev.b32 %r10, %r11;", 0x00000003), 0xc0000000U);
  EXPECT_EQ(made_of("bfind.shiftamt.u32 %r10, %r11;", 1), 31U);
  EXPECT_EQ(made_of("bfind.shiftamt.u32 %r10, %r11;", 0), 0xffffffffU);
  EXPECT_EQ(made_of("dp4a.u32.u32 %r10, %r11, %r12, %r13;", 0x01020304, 0x0a0a0a0a, 5), 105U);
  EXPECT_EQ(made_of("mov.b32 {%rs1, %rs2}, %r11;\nmov.b32 %r10, {%rs2, %rs1};", 0x12345678), 0x56781234U);
  EXPECT_EQ(
      made_of(
          "{ .reg .pred there; setp.ne.u32 there, %r11, 0; mov.u32 %r10, 1; @there add.u32 %r10, %r10, 4; }",
          0),
      1U);
}

TEST_F(machine, tests_are_combined_with_predicates) {
  for (const word held : {0U, 1U}) {
    const auto test = [&](const std::string& how, word a) {
      return made_of(
          "setp.ne.u32 %p1, %r12, 0;\nsetp.ne." + how + ".u32 %p1, %r11, 0, %p1;\nselp.u32 %r10, 1, 0, %p1;",
          a, held);
    };
    for (const word a : {0U, 1U}) {
      EXPECT_EQ(test("and", a), a & held);
      EXPECT_EQ(test("or", a), a | held);
      EXPECT_EQ(test("xor", a), a ^ held);
    }
    EXPECT_EQ(
        made_of("setp.ne.u32 %p1, %r12, 0;\nsetp.lt.and.u32 %p2, %r11, 5, !%p1;\nselp.u32 %r10, 1, 0, %p2;",
                4, held),
        1 - held);
  }
}

TEST_F(machine, numbers_are_rounded_as_on_a_device) {
  EXPECT_EQ(made_of("add.rn.f32 %f4, %f1, %f2;\nmov.b32 %r10, %f4;", bits(1), bits(2)), bits(3));
  // Neither sign nor payload of a NaN is kept.
  EXPECT_EQ(made_of("add.rn.f32 %f4, %f1, %f2;\nmov.b32 %r10, %f4;", 0xffc12345, bits(2)), 0x7fffffffU);
  EXPECT_EQ(made_of("min.f32 %f4, %f1, %f2;\nmov.b32 %r10, %f4;", 0xffc12345, bits(2)), bits(2));
  EXPECT_EQ(made_of("min.f32 %f4, %f1, %f2;\nmov.b32 %r10, %f4;", 0, 0x80000000), 0x80000000U);
  EXPECT_EQ(made_of("max.f32 %f4, %f1, %f2;\nmov.b32 %r10, %f4;", 0x80000000, 0), 0U);
  EXPECT_EQ(made_of("max.f32 %f4, %f1, %f2;\nmov.b32 %r10, %f4;", 0x7fc00000, 0x7fc00000), 0x7fffffffU);
  EXPECT_EQ(made_of("cvt.f32.f16 %f4, %rs11;\nmov.b32 %r10, %f4;", 0x0001), 0x33800000U);
  EXPECT_EQ(made_of("cvt.f32.f16 %f4, %rs11;\nmov.b32 %r10, %f4;", 0xfc00), 0xff800000U);
  EXPECT_EQ(made_of("cvt.f32.f16 %f4, %rs11;\nmov.b32 %r10, %f4;", 0xfe01), 0x7fffffffU);
  // Ties go to even, and what lies beyond the largest number to infinity.
  const std::string to_half = "cvt.rn.f16.f32 %rs1, %f1;\ncvt.u32.u16 %r10, %rs1;";
  EXPECT_EQ(made_of(to_half, bits(2049)), 0x6800U);
  EXPECT_EQ(made_of(to_half, bits(2051)), 0x6802U);
  EXPECT_EQ(made_of(to_half, bits(65519.99F)), 0x7bffU);
  EXPECT_EQ(made_of(to_half, bits(-65520)), 0xfc00U);
  EXPECT_EQ(made_of(to_half, 0x33000000), 0U);
  EXPECT_EQ(made_of(to_half, 0x33000001), 1U);
  EXPECT_EQ(made_of(to_half, bits(0.00006103515625F - 0.00000001F)), 0x0400U);
  EXPECT_EQ(made_of(to_half, 0xffc00000), 0x7fffU);
  // The first operand goes into the upper half.
  EXPECT_EQ(made_of("cvt.rn.f16x2.f32 %r10, %f1, %f2;", bits(1), bits(2)), 0x3c004000U);
  EXPECT_EQ(made_of("cvt.rn.bf16x2.f32 %r10, %f1, %f2;", 0x3f808000, 0x3f818000), 0x3f803f82U);
  const auto codes = [](const std::string& type) {
    return "cvt.rn.satfinite." + type + "x2.f32 %rs1, %f1, %f2;\ncvt.u32.u16 %r10, %rs1;";
  };
  EXPECT_EQ(made_of(codes("e4m3"), bits(448), bits(-1000)), 0x7efeU);
  EXPECT_EQ(made_of(codes("e4m3"), 0x7fc00000, bits(1.0F / 1024)), 0x7f00U);
  EXPECT_EQ(made_of(codes("e4m3"), bits(3.0F / 1024), bits(-1)), 0x02b8U);
  EXPECT_EQ(made_of(codes("e5m2"), bits(1e9F), bits(57344)), 0x7b7bU);
  EXPECT_EQ(made_of("cvt.rn.f16x2.e4m3x2 %r10, %rs11;", 0x7f01), 0x7fff1800U);
  EXPECT_EQ(made_of("cvt.rn.f16x2.e5m2x2 %r10, %rs11;", 0xfc01), 0xfc000100U);
  // 1.0009766 squared is above a tie by less than f16 sees, and rounded once.
  EXPECT_EQ(made_of("fma.rn.f16x2 %r10, %r11, %r12, %r13;", 0x3c013c01, 0x3c013c01, 0x80008000), 0x3c023c02U);
  EXPECT_EQ(made_of("fma.rn.bf16x2 %r10, %r11, %r12, %r13;", 0x3f803f81, 0x3f803f80, 0x3b803b80),
            0x3f803f82U);
  // (1 + 2^-23) squared lies a little above 1 + 2^-22; with c the other way round.
  const auto fused = [](const std::string& mode) {
    return "fma." + mode + ".f32 %f4, %f1, %f2, %f3;\nmov.b32 %r10, %f4;";
  };
  EXPECT_EQ(made_of(fused("rn"), 0x3f800001, 0x3f800001, 0), 0x3f800002U);
  EXPECT_EQ(made_of(fused("rm"), 0x3f800001, 0x3f800001, 0), 0x3f800002U);
  EXPECT_EQ(made_of(fused("rp"), 0x3f800001, 0x3f800001, 0), 0x3f800003U);
  EXPECT_EQ(made_of(fused("rz"), 0x3f800001, 0x3f800001, 0), 0x3f800002U);
  EXPECT_EQ(made_of(fused("rm"), 0xbf800001, 0x3f800001, 0), 0xbf800003U);
  EXPECT_EQ(made_of(fused("rp"), 0xbf800001, 0x3f800001, 0), 0xbf800002U);
  EXPECT_EQ(made_of(fused("rz"), 0xbf800001, 0x3f800001, 0), 0xbf800002U);
  // Far below the last bit of the product.
  EXPECT_EQ(made_of(fused("rm"), 0x3f800000, 0x3f800000, 0x80000001), 0x3f7fffffU);
  EXPECT_EQ(made_of(fused("rz"), 0x3f800000, 0x3f800000, 0x80000001), 0x3f7fffffU);
  EXPECT_EQ(made_of(fused("rp"), 0x3f800000, 0x3f800000, 0x00000001), 0x3f800001U);
  EXPECT_EQ(made_of(fused("rm"), 0x3f800000, 0x3f800000, 0xbf800000), 0x80000000U);
  EXPECT_EQ(made_of(fused("rp"), 0x3f800000, 0x3f800000, 0xbf800000), 0U);
  EXPECT_EQ(made_of(fused("rz"), 0x7f7fffff, 0x7f7fffff, 0), 0x7f7fffffU);
  EXPECT_EQ(made_of(fused("rp"), 0x7f7fffff, 0x7f7fffff, 0), 0x7f800000U);
  EXPECT_EQ(made_of(fused("rm"), 0x7fc00000, 0x7f7fffff, 0), 0x7fffffffU);
  EXPECT_EQ(made_of("set.neu.u32.f16x2 %r10, %r11, %r12;", 0x80007e00, 0), 0x0000ffffU);
  EXPECT_EQ(made_of("set.gt.u32.f16x2 %r10, %r11, %r12;", 0x7e003c00, 0x00003bff), 0x0000ffffU);
  EXPECT_EQ(
      made_of("setp.eq.f16x2 %p1|%p2, %r11, %r12;\nselp.u32 %r10, 1, 0, %p1;\n@%p2 add.u32 %r10, %r10, 2;",
              0x80001234, 0x00001235),
      2U);
  EXPECT_EQ(made_of("setp.gtu.f32 %p1, %f1, %f2;\nselp.u32 %r10, 1, 0, %p1;", 0x7fc00000, 0), 1U);
  EXPECT_EQ(made_of("setp.gt.f32 %p1, %f1, %f2;\nselp.u32 %r10, 1, 0, %p1;", 0x7fc00000, 0), 0U);
}

TEST_F(machine, registers_may_be_wider_than_values) {
  words()[1] = 0xfffe8180;
  run_body(
      "ld.global.u8 %rs1, [%rd1+4];\nld.global.s8 %rs2, [%rd1+4];\nld.global.u16 %r3, [%rd1+4];\n"
      "ld.global.s16 %r4, [%rd1+4];\nst.global.u16 [%rd1+8], %rs1;\nst.global.u16 [%rd1+10], %rs2;\n"
      "st.global.u32 [%rd1+12], %r3;\nst.global.u32 [%rd1+16], %r4;\nst.global.u8 [%rd1+20], %r4;\n"
      "ld.global.v2.u16 {%rs3, %rs4}, [%rd1+4];\nst.global.v2.u16 [%rd1+24], {%rs4, %rs3};");
  EXPECT_EQ(words()[2], 0xff800080U);
  EXPECT_EQ(words()[3], 0x8180U);
  EXPECT_EQ(words()[4], 0xffff8180U);
  EXPECT_EQ(words()[5] & 0xff, 0x80U);
  EXPECT_EQ(words()[6], 0x8180fffeU);
}

/// Each thread goes round as often as its number says, and all meet after that.
TEST_F(machine, lanes_that_go_different_ways_meet_again) {
  for (const word turn : {0U, 1U, 3U}) {
    set_schedule({2, turn, 7});
    run_body(
        "mov.u32 %r2, 0;\nmov.u32 %r3, 0;\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 bra $after;\n"
        "$again:\nadd.s32 %r3, %r3, %r2;\nadd.s32 %r2, %r2, 1;\nsetp.lt.u32 %p2, %r2, %r1;\n@%p2 bra "
        "$again;\n"
        "$after:\nvote.sync.ballot.b32 %r4, %p1, -1;\nshfl.sync.bfly.b32 %r5|%p3, %r3, 1, 31, -1;\n"
        "st.global.v2.u32 [%rd2], {%r3, %r4};\nst.global.u32 [%rd2+8], %r5;",
        64);
    for (word t = 0; t < 64; ++t) {
      SCOPED_TRACE(t);
      EXPECT_EQ(words()[8 * t], t * (t - 1) / 2);
      EXPECT_EQ(words()[8 * t + 1], t < 32 ? 1U : 0U);
      EXPECT_EQ(words()[8 * t + 2], (t ^ 1) * ((t ^ 1) - 1) / 2);
    }
  }
}

TEST_F(machine, lanes_bring_each_other_values) {
  run_body(
      "add.s32 %r2, %r1, 100;\nshfl.sync.up.b32 %r3|%p1, %r2, 3, 0, -1;\nshfl.sync.down.b32 %r4|%p2, %r2, 3, "
      "31, -1;\n"
      "shfl.sync.idx.b32 %r5|%p3, %r2, %r1, 0x181f, -1;\nselp.u32 %r6, 1, 0, %p1;\nselp.u32 %r7, 1, 0, %p2;\n"
      "st.global.v4.u32 [%rd2], {%r3, %r4, %r5, %r6};\nst.global.u32 [%rd2+16], %r7;",
      32);
  for (word t = 0; t < 32; ++t) {
    SCOPED_TRACE(t);
    EXPECT_EQ(words()[8 * t], 100 + (t < 3 ? t : t - 3));
    EXPECT_EQ(words()[8 * t + 1], 100 + (t > 28 ? t : t + 3));
    EXPECT_EQ(words()[8 * t + 2], 100 + t);
    EXPECT_EQ(words()[8 * t + 3], t < 3 ? 0U : 1U);
    EXPECT_EQ(words()[8 * t + 4], t > 28 ? 0U : 1U);
  }
}

/// Blocks pass a sum on, each waiting for the one in front of it.
TEST_F(machine, blocks_wait_for_each_other) {
  for (const schedule s : {schedule{1, 0, 1}, schedule{5, 0, 1}, schedule{5, 4, 1}, schedule{9, 1, 2}}) {
    std::fill_n(words(), 64, 0U);
    words()[0] = 1;
    set_schedule(s);
    run_body(
        "mov.u32 %r2, %ctaid.x;\nmul.wide.u32 %rd3, %r2, 4;\nadd.s64 %rd3, %rd1, %rd3;\n"
        "$again:\nld.acquire.gpu.global.u32 %r3, [%rd3];\nsetp.eq.s32 %p1, %r3, 0;\n@%p1 bra $again;\n"
        "add.s32 %r3, %r3, 1;\nst.release.gpu.global.u32 [%rd3+4], %r3;",
        1, 20);
    for (word b = 0; b <= 20; ++b)
      EXPECT_EQ(words()[b], b + 1);
  }
}

TEST_F(machine, warps_meet_at_barriers_and_atomics_add_up) {
  for (const word turn : {0U, 1U, 5U}) {
    words()[0] = 0;
    set_schedule({3, turn, 3});
    run_body(
        ".shared .align 4 .b8 table[1024];\nmov.u32 %r2, table;\nshl.b32 %r3, %r1, 2;\nadd.s32 %r4, %r2, "
        "%r3;\n"
        "st.shared.u32 [%r4], %r1;\nbar.sync 0;\nxor.b32 %r3, %r3, 0x80;\nadd.s32 %r4, %r2, %r3;\n"
        "ld.shared.u32 %r5, [%r4];\natom.global.add.u32 %r6, [%rd1], %r5;",
        256, 3);
    EXPECT_EQ(words()[0], 3U * 255 * 128);
  }
}

TEST_F(machine, memory_is_touched_where_it_is) {
  const std::string end = std::to_string(words_of_memory * sizeof(word));
  EXPECT_EQ(fault_of("st.global.u32 [%rd1+" + std::to_string(words_of_memory * sizeof(word) - 4) + "], %r1;"),
            "");
  const std::string beyond = fault_of("mov.u32 %r2, %r1;\nst.global.u32 [%rd1+" + end + "], %r1;");
  EXPECT_NE(beyond.find("k, block (0,0,0), thread 0, line "), std::string::npos) << beyond;
  EXPECT_NE(beyond.find("writes 4 bytes of global memory"), std::string::npos) << beyond;
  EXPECT_NE(fault_of("ld.global.u32 %r2, [%rd1+-4];").find("reads 4 bytes of global"), std::string::npos);
  EXPECT_NE(fault_of("ld.global.u64 %rd3, [%rd1+4];").find("not aligned"), std::string::npos);
  EXPECT_NE(fault_of("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1+8];").find("not aligned"),
            std::string::npos);
  EXPECT_NE(fault_of("ld.param.u64 %rd3, [k_param_0+8];").find("parameters"), std::string::npos);
  // Two live blocks do not touch.
  void* other = allocate_device(16);
  EXPECT_NE(fault_of("ld.global.u32 %r2, [%rd1+" + end + "];"), "");
  release(other);
  EXPECT_NE(fault_of(".shared .align 4 .b8 table[16];\nmov.u32 %r2, table;\nst.shared.u32 [%r2+16], %r2;")
                .find("shared memory"),
            std::string::npos);
}

TEST_F(machine, freed_memory_is_gone) {
  void* gone = allocate_device(64);
  words()[2] = static_cast<word>(reinterpret_cast<std::uint64_t>(gone));
  words()[3] = static_cast<word>(reinterpret_cast<std::uint64_t>(gone) >> 32);
  EXPECT_EQ(fault_of("ld.global.u64 %rd3, [%rd1+8];\nst.global.u32 [%rd3], %r1;"), "");
  release(gone);
  EXPECT_NE(fault_of("ld.global.u64 %rd3, [%rd1+8];\nst.global.u32 [%rd3], %r1;").find("where there is none"),
            std::string::npos);
  EXPECT_FALSE(release(gone));
}

const std::string own_word =
    ".shared .align 4 .b8 table[1024];\nmov.u32 %r2, table;\nshl.b32 %r3, %r1, 2;\nadd.s32 %r4, %r2, %r3;\n";

TEST_F(machine, shared_memory_begins_with_a_pattern) {
  run_body(own_word + "ld.shared.u32 %r5, [%r4];\nst.shared.u32 [%r4], %r1;\nst.global.u32 [%rd2], %r5;", 64,
           3);
  for (word t = 0; t < 64; ++t)
    EXPECT_EQ(words()[8 * t], 0xc3c3c3c3U);
}

TEST_F(machine, shared_memory_needs_barriers) {
  const std::string write = own_word + "st.shared.u32 [%r4], %r1;\n";
  const auto read_from = [](const std::string& distance) {
    return "xor.b32 %r3, %r3, " + distance + ";\nadd.s32 %r4, %r2, %r3;\nld.shared.u32 %r5, [%r4];\n";
  };
  // Other warps.
  EXPECT_NE(fault_of(write + read_from("0x80"), 64), "");
  EXPECT_NE(fault_of(write + "bar.warp.sync -1;\n" + read_from("0x80"), 64), "");
  EXPECT_EQ(fault_of(write + "bar.sync 0;\n" + read_from("0x80"), 64), "");
  // Other lanes of the warp.
  EXPECT_NE(fault_of(write + read_from("4"), 64).find("no barrier in between"), std::string::npos);
  EXPECT_EQ(fault_of(write + "bar.warp.sync -1;\n" + read_from("4"), 64), "");
  // Written over while others may still read.
  const std::string over = "xor.b32 %r3, %r3, 0x80;\nadd.s32 %r4, %r2, %r3;\nst.shared.u32 [%r4], %r5;\n";
  EXPECT_NE(fault_of(write + "bar.sync 0;\n" + read_from("0x80") + over, 64), "");
  EXPECT_EQ(fault_of(write + "bar.sync 0;\n" + read_from("0x80") + "bar.sync 0;\n" + over, 64), "");
  EXPECT_NE(fault_of(write + "st.shared.u32 [%r2], %r1;", 64).find("writes with no barrier"),
            std::string::npos);
}

TEST_F(machine, lanes_that_do_not_come_are_missed) {
  const std::string half = "setp.lt.u32 %p1, %r1, 16;\n";
  EXPECT_NE(
      fault_of(
          half +
              "@%p1 bra $after;\nbar.sync 0;\n$after:\nmov.u32 %r2, 0;\nvote.sync.ballot.b32 %r3, %p1, -1;",
          32),
      "");
  EXPECT_NE(fault_of(half + "@%p1 bra $after;\nbar.warp.sync -1;\nret;\n$after:\nbar.warp.sync -1;", 32), "");
  EXPECT_EQ(
      fault_of(half + "@%p1 bra $after;\nbar.warp.sync 0xffff0000;\nret;\n$after:\nbar.warp.sync 0xffff;",
               32),
      "");
  EXPECT_NE(fault_of(half + "@%p1 bar.warp.sync -1;", 32).find("under a condition"), std::string::npos);
  EXPECT_NE(fault_of("bar.warp.sync 0xfffffffe;", 32).find("none of the lanes"), std::string::npos);
  EXPECT_NE(fault_of(half + "@%p1 bra $after;\nshfl.sync.idx.b32 %r3|%p2, %r1, 0, 31, "
                            "0xffff0000;\n$after:\nmov.u32 %r2, 0;",
                     32)
                .find("asks lane 0"),
            std::string::npos);
  // Lanes that have ended are not waited for.
  EXPECT_EQ(fault_of(half + "@%p1 ret;\nbar.warp.sync -1;\nbar.sync 0;", 64), "");
}

TEST_F(machine, a_text_that_is_not_understood_says_where) {
  const auto fault = [](const std::string& text) {
    try {
      program p(text);
      static_cast<void>(p.find("k"));
    } catch (const violation& v) {
      return std::string(v.what());
    }
    return std::string();
  };
  EXPECT_EQ(fault(text_of("tanh.approx.f32 %f1, %f2;")),
            "PTX line 18 of k: the machine does not know tanh.approx.f32");
  EXPECT_NE(fault(text_of("add.s32 %r99, %r1, %r2;")), "");
  EXPECT_NE(fault(text_of("add.s32 %r2, %rd1, %r2;")), "");
  EXPECT_NE(fault(text_of("add.s32 %r2, %r1;")), "");
  EXPECT_NE(fault(text_of("bra $nowhere;")), "");
  EXPECT_NE(fault(text_of("add.s32 %r2, %r1, %r1")), "");
  EXPECT_NE(fault(text_of("add.s32 %r2, nothing, %r1;")), "");
  EXPECT_NE(fault(text_of("ld.global.u32 %r2, %rd1;")), "");
  EXPECT_NE(fault(text_of("bar.sync 1;")), "");
  EXPECT_NE(fault(".entry k( .param .u64 a ) { ret;"), "");
  program none(".version 9.0\n");
  EXPECT_EQ(none.find("k"), nullptr);
}

TEST_F(machine, instructions_are_counted_at_their_lines) {
  count_accesses(true);
  // The last one written is not the last one run, and no ret.
  const std::string body =
      "bra $last;\n$first:\nst.global.u32 [%rd2], %r1;\nret;\n$last:\n@%p1 bra $first;\nbra $first;";
  std::string text = text_of(body);
  text.replace(text.find("entry k("), 8, "entry counted_once(");
  program p(text.substr(0, text.rfind("\tret;")) + "}\n");
  const kernel* k = p.find("counted_once");
  ASSERT_NE(k, nullptr);
  run(*k, {2}, {64}, 0, reinterpret_cast<const std::byte*>(&memory_));
  bool found = false;
  for (const line_counts& lines : lines_so_far()) {
    if (lines.kernel != "counted_once") continue;
    found = true;
    EXPECT_EQ(lines.first_line, 14U);
    ASSERT_GE(lines.ran.size(), 11U);
    EXPECT_EQ(lines.ran[18 - 14], 4U);
    EXPECT_EQ(lines.ran[20 - 14], 4U);
    EXPECT_EQ(lines.ran[24 - 14], 4U);
  }
  EXPECT_TRUE(found);
}

TEST_F(machine, accesses_are_counted_as_a_device_makes_them) {
  const auto so_far = [] {
    for (const named_counts& n : counts_so_far()) {
      if (n.kernel == "k") return n.ran;
    }
    return counts{};
  };
  const auto counted = [&](const std::string& body) {
    count_accesses(true);
    const counts before = so_far();
    run_body(body, 32);
    counts ran = so_far();
    ran -= before;
    return ran;
  };
  const counts near = counted(
      "shl.b32 %r2, %r1, 2;\ncvt.u64.u32 %rd3, %r2;\nadd.s64 %rd3, %rd1, %rd3;\nld.global.u32 %r3, "
      "[%rd3];\nst.global.u32 [%rd3], %r3;");
  EXPECT_EQ(near.launches, 1U);
  EXPECT_EQ(near.threads, 32U);
  EXPECT_EQ(near.warp_instructions, 10U);
  EXPECT_EQ(near.lane_instructions, 320U);
  EXPECT_EQ(near.global_loads, 1U);
  EXPECT_EQ(near.load_sectors, 4U);
  EXPECT_EQ(near.store_sectors, 4U);
  const counts far = counted("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2];");
  EXPECT_EQ(far.load_sectors, 32U);
  const auto passes = [&](const std::string& shift, const std::string& store) {
    return counted(".shared .align 16 .b8 table[4096];\nmov.u32 %r2, table;\nshl.b32 %r3, %r1, " + shift +
                   ";\nadd.s32 %r4, %r2, %r3;\n" + store)
        .shared_passes;
  };
  EXPECT_EQ(passes("2", "st.shared.u32 [%r4], %r1;"), 1U);
  EXPECT_EQ(passes("3", "st.shared.u32 [%r4], %r1;"), 2U);
  EXPECT_EQ(passes("7", "st.shared.u32 [%r4], %r1;"), 32U);
  EXPECT_EQ(passes("0", "st.shared.u8 [%r4], %r1;"), 1U);
  EXPECT_EQ(passes("3", "st.shared.v2.u32 [%r4], {%r1, %r1};"), 2U);
  EXPECT_EQ(passes("4", "st.shared.v4.u32 [%r4], {%r1, %r1, %r1, %r1};"), 4U);
  EXPECT_EQ(passes("5", "st.shared.v4.u32 [%r4], {%r1, %r1, %r1, %r1};"), 8U);
}

}  // namespace
}  // namespace stash::ptx
