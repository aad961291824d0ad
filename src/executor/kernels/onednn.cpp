// SPDX-License-Identifier: Apache-2.0
#include "executor/kernels/onednn.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <limits>

#include "stash/error.hpp"

namespace stash::executor::onednn {
namespace {

using dnnl::memory;

template <class Function>
void translated(const char* what, Function&& call) {
  try {
    call();
  } catch (const dnnl::error& e) {
    const errc code = e.status == dnnl_out_of_memory   ? errc::out_of_memory
                      : e.status == dnnl_unimplemented ? errc::unsupported
                                                       : errc::internal;
    throw error(code, fmt::format("{}: oneDNN: expected success, got \"{}\" (status {})", what, e.what(),
                                  static_cast<int>(e.status)));
  }
}

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& cpu_stream() {
  static thread_local dnnl::stream stream(cpu_engine());
  return stream;
}

dnnl::primitive_attr caller_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

memory::desc nhwc(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return {{n, c, h, w}, memory::data_type::f32, memory::format_tag::nhwc};
}

memory::dims weight_dims(const convolution_shape& s) {
  if (s.groups == 1) return {s.out_channels, s.in_channels, s.kernel_h, s.kernel_w};
  return {s.groups, s.out_channels / s.groups, s.in_channels / s.groups, s.kernel_h, s.kernel_w};
}

using forward_description = dnnl::convolution_forward::primitive_desc;

/// What the library makes of an operation. The only code where the major versions differ: version 2 goes
/// through an operation descriptor, and looks at that and at the hint again when it is asked for another
/// implementation.
template <class Primitive>
struct described_operation {
#if DNNL_VERSION_MAJOR >= 3
  template <class... Arguments>
  explicit described_operation(const Arguments&... arguments)
      : made(cpu_engine(), arguments..., caller_scratchpad()) {}
  template <class... Arguments>
  explicit described_operation(const forward_description& hint, const Arguments&... arguments)
      : made(cpu_engine(), arguments..., hint, caller_scratchpad()) {}
#else
  template <class... Arguments>
  explicit described_operation(const Arguments&... arguments)
      : operation(arguments...), made(operation, caller_scratchpad(), cpu_engine()) {}
  template <class... Arguments>
  explicit described_operation(const forward_description& hint, const Arguments&... arguments)
      : operation(arguments...), made(operation, caller_scratchpad(), cpu_engine(), hint) {}

  typename Primitive::desc operation;
#endif
  typename Primitive::primitive_desc made;

  described_operation(const described_operation&) = delete;
  described_operation& operator=(const described_operation&) = delete;
};

/// Whether an operand is too large for an implementation shows in some only when their code is generated:
/// then the next one has its turn, and `made` becomes that one's.
dnnl::primitive make_primitive(dnnl::primitive_desc& made) {
  for (;;) {
    try {
      return dnnl::primitive(made);
    } catch (const dnnl::error& e) {
      if (e.status != dnnl_runtime_error || !made.next_impl()) throw;
    }
  }
}

/// The library counts the pixels of a map, its padding included, in 32 bits, and divides by such counts.
void check_pixels(std::int64_t h, std::int64_t w) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (h <= most && w <= most && (w <= 0 || h <= most / w)) return;
  throw error(
      errc::unsupported,
      fmt::format("convolution: expected maps of at most {} pixels with padding for oneDNN, got {}x{}", most,
                  h, w));
}

void check_sizes(const convolution_shape& s) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  check_pixels(s.in_h + s.pad_top + s.pad_bottom, s.in_w + s.pad_left + s.pad_right);
  check_pixels(s.out_h, s.out_w);
  if (s.batch <= most && s.in_channels <= most && s.out_channels <= most) return;
  throw error(errc::unsupported,
              fmt::format("convolution: expected at most {} samples and channels for oneDNN, got {} samples, "
                          "{} and {} channels",
                          most, s.batch, s.in_channels, s.out_channels));
}

memory unbound(const memory::desc& desc) {
  return {desc, cpu_engine(), DNNL_MEMORY_NONE};
}

void point(memory& where, const void* data) {
  // The library has one handle type for data that it reads and data that it writes.
  where.set_data_handle(const_cast<void*>(data));
}

std::string isa_name(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return fmt::format("isa {:#x}", static_cast<unsigned>(isa));
  }
}

}  // namespace

thread_scope::thread_scope(int threads) : previous_(omp_get_max_threads()) {
  omp_set_num_threads(threads);
}
thread_scope::~thread_scope() {
  omp_set_num_threads(previous_);
}

memory::desc plain_weights(const convolution_shape& shape, std::int64_t in_pitch) {
  memory::desc desc;
  translated("plain_weights", [&] {
    const memory::dims dims = weight_dims(shape);
    memory::dims strides(dims.size(), 1);
    for (std::size_t i = dims.size() - 1; i-- > 0;)
      strides[i] = strides[i + 1] * dims[i + 1];
    if (in_pitch != 0) strides[0] = in_pitch;
    desc = memory::desc(dims, memory::data_type::f32, strides);
  });
  return desc;
}

convolution::convolution(direction way, const convolution_shape& s, bool bias,
                         const std::optional<memory::desc>& weights) {
  check_sizes(s);
  translated("convolution", [&] {
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const memory::desc src = nhwc(s.batch, s.in_channels, s.in_h, s.in_w);
    const memory::desc dst = nhwc(s.batch, s.out_channels, s.out_h, s.out_w);
    const memory::desc any(weight_dims(s), memory::data_type::f32, memory::format_tag::any);
    const memory::desc weights_format = weights.value_or(any);
    const memory::desc bias_desc({s.out_channels}, memory::data_type::f32, memory::format_tag::x);
    const memory::dims strides{s.stride_h, s.stride_w};
    const memory::dims before{s.pad_top, s.pad_left}, after{s.pad_bottom, s.pad_right};
    const auto forward = [&](const memory::desc& w) {
      const auto kind = dnnl::prop_kind::forward_training;
      using form = described_operation<dnnl::convolution_forward>;
      return bias ? form(kind, algorithm, src, w, bias_desc, dst, strides, before, after)
                  : form(kind, algorithm, src, w, dst, strides, before, after);
    };
    dnnl::primitive_desc made;
    const auto take = [&](auto&& described) {
      primitive_ = make_primitive(described.made);
      made = described.made;
    };
    int src_argument = DNNL_ARG_SRC, weights_argument = DNNL_ARG_WEIGHTS, dst_argument = DNNL_ARG_DIFF_DST;
    switch (way) {
      case direction::forward:
        take(forward(weights_format));
        dst_argument = DNNL_ARG_DST;
        break;
      case direction::backward_data:
        take(described_operation<dnnl::convolution_backward_data>(
            forward(any).made, algorithm, src, weights_format, dst, strides, before, after));
        src_argument = DNNL_ARG_DIFF_SRC;
        break;
      case direction::backward_weights:
        take(described_operation<dnnl::convolution_backward_weights>(
            forward(any).made, algorithm, src, weights_format, dst, strides, before, after));
        weights_argument = DNNL_ARG_DIFF_WEIGHTS;
        break;
    }
    weights_desc_ = way == direction::backward_weights ? made.diff_weights_desc(0) : made.weights_desc(0);
    scratchpad_bytes_ = static_cast<std::int64_t>(made.scratchpad_desc().get_size());
    implementation_ = made.impl_info_str();
    src_ = unbound(src);
    weights_ = unbound(weights_desc_);
    dst_ = unbound(dst);
    scratchpad_ = unbound(made.scratchpad_desc());
    arguments_ = {{src_argument, src_},
                  {weights_argument, weights_},
                  {dst_argument, dst_},
                  {DNNL_ARG_SCRATCHPAD, scratchpad_}};
    if (bias) {
      bias_ = unbound(bias_desc);
      arguments_.emplace(DNNL_ARG_BIAS, bias_);
    }
  });
}

void convolution::run(const float* src, const float* weights, const float* bias, const float* dst,
                      void* scratchpad) {
  translated("convolution", [&] {
    point(src_, src);
    point(weights_, weights);
    point(dst_, dst);
    point(scratchpad_, scratchpad);
    if (bias_) point(bias_, bias);
    primitive_.execute(cpu_stream(), arguments_);
    cpu_stream().wait();
  });
}

reorder::reorder(const memory::desc& from, const memory::desc& to) {
  translated("reorder", [&] {
    const dnnl::reorder::primitive_desc made(cpu_engine(), from, cpu_engine(), to, caller_scratchpad());
    scratchpad_bytes_ = static_cast<std::int64_t>(made.scratchpad_desc().get_size());
    primitive_ = dnnl::reorder(made);
    from_ = unbound(from);
    to_ = unbound(to);
    scratchpad_ = unbound(made.scratchpad_desc());
    arguments_ = {{DNNL_ARG_FROM, from_}, {DNNL_ARG_TO, to_}, {DNNL_ARG_SCRATCHPAD, scratchpad_}};
  });
}

void reorder::run(const float* from, float* to, void* scratchpad) {
  translated("reorder", [&] {
    point(from_, from);
    point(to_, to);
    point(scratchpad_, scratchpad);
    primitive_.execute(cpu_stream(), arguments_);
    cpu_stream().wait();
  });
}

std::string description() {
  const dnnl_version_t& version = *dnnl_version();
  return fmt::format("oneDNN {}.{}.{} {}", version.major, version.minor, version.patch,
                     isa_name(dnnl::get_effective_cpu_isa()));
}

}  // namespace stash::executor::onednn
