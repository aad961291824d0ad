// SPDX-License-Identifier: Apache-2.0
// The backward calls of the pooling layers, from codes and stashes of unknown origin, for windows of every
// kind.

#include <string_view>

#include "encoders/pooling/pool_backward.hpp"
#include "encoders/pooling/pool_general.hpp"
#include "fuzz/target.hpp"
#include "stash/cpu.hpp"
#include "stash/error.hpp"
#include "stash/pool.hpp"

namespace stash::fuzz {
namespace {

/// One axis: everything modulo something small.
struct axis_fields {
  std::uint8_t extent = 0, kernel = 0, stride = 0, pad = 0, dilation = 0;
};

struct pool_header {
  axis_fields depth, rows, columns;
  std::uint8_t samples = 0, channels = 0, gap = 0;
  std::uint8_t type = 0, call = 0, stash = 0, target = 0;
  /// Bit 0: NCHW, 1: five dimensions, 2: pytorch, 3: the stash's flag that its mask is not the
  /// sign.
  std::uint8_t choices = 0;
  std::uint8_t zero = 0;
  std::uint16_t stash_bytes = 0;  ///< of the bytes after the header, from their end
};

struct axis {
  std::int64_t in = 1, out = 1;
  std::int32_t kernel = 1, stride = 1, pad = 0, dilation = 1;
};

/// Some have windows that lie wholly outside x: those calls have to be refused.
axis make_axis(const axis_fields& f) {
  axis a;
  a.in = f.extent % 8;
  a.kernel = 1 + f.kernel % 6;
  a.stride = 1 + f.stride % 4;
  a.pad = f.pad % 3;
  a.dilation = 1 + f.dilation % 3;
  const std::int64_t reach = (a.kernel - 1) * a.dilation + 1;
  a.out = a.in + 2 * a.pad < reach ? 1 : (a.in + 2 * a.pad - reach) / a.stride + 1;
  return a;
}

constexpr dtype types[] = {dtype::f32, dtype::f16, dtype::bf16};
constexpr std::string_view stash_names[] = {"sign_mask", "bitmap", "csr_fp8", "fp8", "bitmap_fp10"};

enum class call : std::uint8_t { index, code, index_and_stash, count };

/// An input made ready for calls.
struct pool_case {
  pool_header header;
  pool_window window;
  dtype type = dtype::f32;
  shape dx, dy;
  std::int64_t gap = 0;
  call which = call::index;
  encoding stash_form;
  std::span<const std::uint8_t> codes, stash;
  std::string target;

  explicit pool_case(std::span<const std::uint8_t> input) {
    header = take<pool_header>(input);
    const bool volume = (header.choices & 2) != 0, first = (header.choices & 1) != 0;
    const axis depth = volume ? make_axis(header.depth) : axis{};
    const axis rows = make_axis(header.rows), columns = make_axis(header.columns);
    window = {rows.kernel,
              columns.kernel,
              rows.stride,
              columns.stride,
              rows.pad,
              columns.pad,
              depth.kernel,
              depth.stride,
              depth.pad,
              rows.dilation,
              columns.dilation,
              depth.dilation,
              first ? pool_layout::channels_first : pool_layout::channels_last};
    const std::int64_t samples = header.samples % 3, channels = header.channels % 20;
    const auto dims = [&](std::int64_t d, std::int64_t h, std::int64_t w) {
      if (volume) return first ? shape{samples, channels, d, h, w} : shape{samples, d, h, w, channels};
      return first ? shape{samples, channels, h, w} : shape{samples, h, w, channels};
    };
    dx = dims(depth.in, rows.in, columns.in);
    dy = dims(depth.out, rows.out, columns.out);
    gap = first ? 0 : header.gap % 3;
    type = types[header.type % std::size(types)];
    which = static_cast<call>(header.call % static_cast<std::uint8_t>(call::count));
    stash_form = parse_encoding(stash_names[header.stash % std::size(stash_names)]);
    stash_form.underflow = underflow_rule::keep_nonzero;
    const std::size_t stash_size = std::min<std::size_t>(header.stash_bytes, input.size());
    codes = input.first(input.size() - stash_size);
    stash = input.last(stash_size);
    static const std::vector<std::string> known = cpu_targets();
    target = known[header.target % known.size()];
  }

  std::size_t tensor_bytes(const shape& dims) const {
    const std::int64_t inner = dims.inner();
    return inner == 0 ? 0 : static_cast<std::size_t>(dims.elements() / inner * (inner + gap)) * size_of(type);
  }
  tensor_view tensor(const exact_buffer& memory, const shape& dims) const {
    return {memory.data(), type, memory_space::host, dims, dims.inner() + gap};
  }
  framework_rule rule() const {
    return (header.choices & 4) != 0 ? framework_rule::pytorch : framework_rule::tensorflow;
  }
};

struct outcome {
  bool refused = false;
  std::uint32_t status = 0;
  friend bool operator==(const outcome&, const outcome&) = default;
};

outcome backward(const pool_case& c, const const_tensor_view& dy, const tensor_view& dx) {
  const exact_buffer codes(c.codes), stash(c.stash);
  encode_report code_report, stash_report;
  if ((c.header.choices & 8) != 0) stash_report.flags = flag_mask_is_not_sign;
  const const_encoded_view code_view{codes.data(), codes.size(), nullptr, &code_report};
  const const_encoded_view stash_view{stash.data(), stash.size(), nullptr, &stash_report};
  outcome result;
  try {
    switch (c.which) {
      case call::index:
        max_pool_backward(dy, {window_index_of(c.window), dy.type, dy.dims, code_view}, dx, c.window, {});
        break;
      case call::code:
        relu_max_pool_backward(dy, {relu_pool_of(c.window), dy.type, dy.dims, code_view}, dx, c.window, {});
        break;
      case call::index_and_stash:
      case call::count:
        relu_max_pool_backward(dy, {window_index_of(c.window), dy.type, dy.dims, code_view},
                               {c.stash_form, dy.type, dy.dims, stash_view}, dx, c.window, c.rule(), {});
        break;
    }
  } catch (const error& e) {
    require(e.code() == errc::capacity_exceeded || e.code() == errc::invalid_argument ||
                e.code() == errc::unsupported,
            e.what());
    result.refused = true;
  }
  result.status = code_report.status | stash_report.status;
  return result;
}

/// From an index that was not refused: positions of these codes, which are taps of their windows, and the
/// same codes again where they were taps before.
void check_positions(const pool_case& c, const outcome& backward) {
  const exact_buffer codes(c.codes);
  const exact_buffer flat(static_cast<std::size_t>(c.dy.elements()) * sizeof(std::int64_t), 0xff);
  auto* const positions = reinterpret_cast<std::int64_t*>(flat.data());
  encode_report from, to;
  decode_window_index(
      {window_index_of(c.window), dtype::f32, c.dy, {codes.data(), codes.size(), nullptr, &from}}, c.dx,
      c.window, positions, {});
  require(from.status == backward.status, "codes are taps for both or for none");
  const auto taps = static_cast<std::uint16_t>(c.window.taps());
  const exact_buffer again(encoded_bytes_bound({.kind = encoding_kind::window_index, .window_taps = taps},
                                               c.type, c.dy.elements()),
                           0xa5);
  encode_window_index(positions, c.dy, c.dx, c.window, {again.data(), again.size(), nullptr, &to}, {});
  require(to.status == status_ok, "decoded positions are taps");
  if (from.status != status_ok || c.dy.elements() == 0) return;
  const auto used = static_cast<std::size_t>(c.dy.elements()) * (taps <= 4 ? 2 : taps <= 16 ? 4 : 8) / 8;
  require(std::memcmp(again.data(), codes.data(), used) == 0, "the same codes");
}

/// From an index that was not refused, the way that large maps go.
outcome gathered_backward(const pool_case& c, const const_tensor_view& dy, const tensor_view& dx) {
  const exact_buffer codes(c.codes);
  encode_report report;
  const encoders::pool_shape s = encoders::check_pool("fuzz", "dx", dx, "dy", dy, c.window);
  const encoded_tensor index{
      window_index_of(c.window), dy.type, dy.dims, {codes.data(), codes.size(), nullptr, &report}};
  encoders::pool_backward(s, dy, encoders::checked_index_source("fuzz", index, c.window, s.taps(), dy), dx,
                          report.status, {}, encoders::backward_way::gather);
  return {false, report.status};
}

/// Gradients of one, so that sums are exact and tell how often a gradient arrived.
bytes ones(const pool_case& c) {
  bytes gradient(c.tensor_bytes(c.dy));
  const std::uint8_t low = c.type == dtype::f16 ? 0x00 : 0x80, high = c.type == dtype::f16 ? 0x3c : 0x3f;
  const std::size_t size = size_of(c.type);
  for (std::size_t at = 0; at < gradient.size(); at += size) {
    gradient[at + size - 2] = low;
    gradient[at + size - 1] = high;
  }
  return gradient;
}

bool same_rows(const pool_case& c, const exact_buffer& a, const exact_buffer& b) {
  const std::size_t row = static_cast<std::size_t>(c.dx.inner()) * size_of(c.type);
  const std::size_t stride = row + static_cast<std::size_t>(c.gap) * size_of(c.type);
  for (std::size_t begin = 0; stride != 0 && begin + stride <= a.size(); begin += stride) {
    if (std::memcmp(a.data() + begin, b.data() + begin, row) != 0) return false;
    for (std::size_t at = begin + row; at < begin + stride; ++at) {
      if (a.data()[at] != 0x00 || b.data()[at] != 0xff) return false;
    }
  }
  return true;
}

/// Codes and stash of a map that falls from 5 in steps of a half, forward for this header.
bytes make_seed(const pool_header& header) {
  const pool_case c(with_header(header, {}));
  const auto count = static_cast<std::size_t>(c.dx.elements());
  // 16-bit maps: whatever numbers these patterns are.
  exact_buffer x(count * size_of(c.type), 0);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = 5.0F - static_cast<float>(i * 7 % 23) * 0.5F;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    bits >>= 8 * (4 - size_of(c.type));
    std::memcpy(x.data() + i * size_of(c.type), &bits, size_of(c.type));
  }
  const auto pooled = static_cast<std::size_t>(c.dy.elements());
  exact_buffer y(pooled * size_of(c.type), 0), index(pooled + 16, 0), code(pooled + 32, 0);
  encode_report index_report, code_report, stash_report;
  const const_tensor_view xs{x.data(), c.type, memory_space::host, c.dx};
  const tensor_view ys{y.data(), c.type, memory_space::host, c.dy};
  const encoded_view no_code{};
  const bool wants_code = c.which == call::code;
  relu_max_pool_forward(
      xs, ys, c.window, wants_code ? encoded_view{code.data(), code.size(), nullptr, &code_report} : no_code,
      wants_code ? no_code : encoded_view{index.data(), index.size(), nullptr, &index_report}, c.rule(), {});
  bytes stored(wants_code ? code.data() : index.data(),
               wants_code ? code.data() + code.size() : index.data() + index.size());
  pool_header written = header;
  if (c.which == call::index_and_stash) {
    const exact_buffer stash(encoded_bytes_bound(c.stash_form, c.type, c.dy.elements()), 0);
    encode(c.stash_form, ys, {stash.data(), stash.size(), nullptr, &stash_report}, {}, {});
    written.stash_bytes = static_cast<std::uint16_t>(stash.size());
    stored.insert(stored.end(), stash.data(), stash.data() + stash.size());
  }
  return with_header(written, stored);
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const pool_case c(input);
  const exact_buffer dy(ones(c));
  const exact_buffer plain(c.tensor_bytes(c.dx), 0x00), fast(c.tensor_bytes(c.dx), 0xff);
  set_cpu_target("scalar");
  const outcome first = backward(c, c.tensor(dy, c.dy), c.tensor(plain, c.dx));
  set_cpu_target(c.target);
  const outcome second = backward(c, c.tensor(dy, c.dy), c.tensor(fast, c.dx));
  require(first == second, "one outcome");
  if (first.refused) {
    require(fast.holds_only(0xff), "a refused call writes nothing");
    return;
  }
  require(same_rows(c, plain, fast), "one gradient, and gaps between rows stay");
  if (c.which == call::index) check_positions(c, first);
  if (c.which != call::index || encoders::is_general(c.window, c.tensor(plain, c.dx))) return;
  if (encoders::loops().gather == nullptr) return;
  const exact_buffer large(c.tensor_bytes(c.dx), 0xff);
  const outcome third = gathered_backward(c, c.tensor(dy, c.dy), c.tensor(large, c.dx));
  require(first == third && same_rows(c, plain, large), "the way of large maps gives the same");
}

std::vector<bytes> seeds() {
  constexpr axis_fields one{1, 0, 0, 0, 0}, halved{6, 1, 1, 0, 0}, overlapping{7, 2, 1, 1, 0},
      wide{7, 4, 0, 2, 0}, dilated{7, 1, 0, 0, 1};
  std::vector<bytes> all;
  for (const auto& [depth, plane] :
       {std::pair{one, halved}, std::pair{one, overlapping}, std::pair{one, wide}, std::pair{one, dilated},
        std::pair{halved, overlapping}}) {
    for (std::uint8_t call_number = 0; call_number < static_cast<std::uint8_t>(call::count); ++call_number) {
      for (std::uint8_t variant = 0; variant < 6; ++variant) {
        pool_header h{depth, plane, plane, 1, static_cast<std::uint8_t>(variant % 2 == 0 ? 3 : 17)};
        h.type = variant % 3;
        h.call = call_number;
        h.stash = variant;
        h.target = variant;
        h.choices = static_cast<std::uint8_t>((variant < 3 ? 0 : 1) | (depth.extent > 1 ? 2 : 0));
        // Windows of more than 15 taps have no joint code.
        const int taps = (1 + depth.kernel) * (1 + plane.kernel) * (1 + plane.kernel);
        if (static_cast<call>(call_number) == call::code && taps > 15) continue;
        all.push_back(make_seed(h));
      }
    }
  }
  return all;
}

}  // namespace stash::fuzz
