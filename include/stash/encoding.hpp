// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Encodings as values, and the non-owning calls encode() and decode(). Bit layouts: docs/format.md.
///
/// On the host results do not depend on the rounding mode of the threads that call or compute: all round to
/// nearest, ties to even, and keep their mode. Encoded and decoded bytes do not depend on their denormal mode
/// either; what does is said in relu.hpp, pool.hpp and dropout.hpp.
///
/// The non-owning API (calls that take views) never allocates, never blocks on anything but the caller's own
/// threads, and never prints. Thread safety: calls on disjoint buffers may run at the same time; the overflow
/// arena and a status record may be shared between calls (they are updated atomically).
///
/// Overlap, here and in the layers: what a call writes (maps, encoded bytes, reports, an arena with its
/// counters, workspace) may overlap nothing that it reads, and nothing else that it writes; else
/// error(invalid_argument), before anything is written. Where a call says that one map may be another, that
/// is the same elements at the same addresses, with the same pitch. Slices of different channels of one map
/// (with its pitch) do not overlap; maps of different pitches are refused if one may lie in the other's gaps.
/// Of encoded bytes counts what the encoding can use, encoded_bytes_bound() at most, and not the rest of a
/// slot. One report may serve all encoded bytes of a call. Only addresses are compared, those of a device,
/// too: memory that is mapped twice is not noticed.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stash/execution.hpp"
#include "stash/status.hpp"
#include "stash/tensor_view.hpp"
#include "stash/value_format.hpp"
#include "stash/visibility.h"

namespace stash {

/// How a tensor is stored.
enum class encoding_kind : std::uint8_t {
  raw = 0,           ///< the dense bytes
  shape_only = 1,    ///< nothing: the backward pass needs only the shape
  sign_mask = 2,     ///< 1 bit per element
  window_index = 3,  ///< 2, 4 or 8 bits per pooled value (written by max_pool_forward)
  relu_pool = 4,     ///< index and sign per pooled value (written by relu_max_pool_forward)
  bitmap = 5,        ///< mask plane + packed non-zero values in tiles of 1,024
  cast = 6,          ///< every value in a narrower format
  range_mask = 7,    ///< 1 bit per element: strictly between two bounds
  csr = 8,           ///< rows of 256: row ends, packed non-zero values and one-byte columns, in tiles
};

/// What becomes of a finite non-zero value that rounds to zero.
enum class underflow_rule : std::uint8_t {
  /// Sparse MX values that are decoded and encoded again are rounded again where one became zero before them
  /// in their tile: groups of 32 then have other members (docs/format.md, "Encoding what was decoded"). Every
  /// other encoding gives the same values however often it is repeated.
  to_zero = 0,
  keep_nonzero = 1,  ///< the smallest subnormal with the value's sign, so that a sign can be read from it
};

/// Whose ReLU and max-pooling are served: they differ in NaN. See docs/format.md, "Framework rules".
///   tensorflow: gradient passes where y > 0; a NaN wins a pooling window only as its first tap.
///   pytorch:    gradient passes where !(y <= 0), so NaN passes; the last NaN of a window wins it.
/// In both, the first of equal maxima in row-major order wins.
enum class framework_rule : std::uint8_t { tensorflow = 0, pytorch = 1 };

/// An encoding with its parameters. Regular value type.
struct encoding {
  encoding_kind kind = encoding_kind::raw;
  value_format values = value_format::source;          ///< bitmap, csr, cast
  underflow_rule underflow = underflow_rule::to_zero;  ///< bitmap, csr, cast with narrower values
  framework_rule rule = framework_rule::tensorflow;    ///< sign_mask, range_mask
  std::uint16_t window_taps = 0;     ///< window_index, relu_pool: taps of the window (1..256)
  float lower = 0.0F, upper = 6.0F;  ///< range_mask: bounds, lower < upper; rounded to a 16-bit map's type

  friend constexpr bool operator==(const encoding&, const encoding&) = default;
};

/// True if decode() gives back the source bits (or, for masks and indices, exactly what backward needs).
/// False for a kind or format that does not exist.
STASH_API bool is_lossless(const encoding& e) noexcept;

/// Stable name: "raw", "shape_only", "sign_mask", "range_mask", "window_index", "relu_pool", "bitmap", "csr";
/// for narrow values the format's name (value_format.hpp: "fp16", "fp8" ...), alone for cast, and after
/// "bitmap_" or "csr_". The rules and bounds are not part of the name.
STASH_API std::string to_string(const encoding& e);
/// Inverse of to_string. Throws error(invalid_argument) naming the known encodings.
STASH_API encoding parse_encoding(std::string_view name);

/// Elements per tile of the tile container (bitmap, csr).
inline constexpr std::int64_t tile_elements = 1024;
/// Elements per row of csr.
inline constexpr std::int64_t csr_row_elements = 256;
/// Encoded buffers start at and are padded to multiples of this many bytes.
inline constexpr std::size_t encoded_alignment = 16;

/// Largest size of the encoded form, in bytes, for `elements` elements of `source`; a multiple of 16, 0 for
/// no elements. Pure. For window_index and relu_pool `elements` counts pooled values.
/// Throws error(invalid_argument) for a negative count or an encoding/type pair that has no meaning.
STASH_API std::size_t encoded_bytes_bound(const encoding& e, dtype source, std::int64_t elements);

/// Size of a slot that holds the encoded form when the share of non-zero elements is `density` (0..1), each
/// tile's payload padded to 16 bytes; never above the bound. Encodings of fixed size ignore the density.
STASH_API std::size_t encoded_bytes_at_density(const encoding& e, dtype source, std::int64_t elements,
                                               double density);

/// Bytes that encoding exactly this tensor needs in the canonical form. Reads the tensor once. On the host
/// only: a device would have to be waited for, so that there a size_query counts (size_query.hpp), and this
/// throws error(unsupported).
STASH_API std::size_t encoded_bytes_exact(const encoding& e, const const_tensor_view& input,
                                          const execution_context& context);

/// Workspace bytes for encode()/decode() in a context: 0 on the CPU, and on a device but for bitmap and csr
/// in canonical order. Pure.
STASH_API std::size_t workspace_bytes(const encoding& e, dtype source, std::int64_t elements,
                                      const execution_context& context = {});

/// Memory shared by many sparse tensors for tiles that do not fit their slot: an arena, and a host overflow
/// for tiles that do not fit the arena either. `claimed` counts bytes of the arena handed out so far (a
/// multiple of 16; it may exceed `bytes` after a failed claim) and is zeroed by the caller when all tensors
/// that used the arena are dead; `host_claimed` likewise for the host overflow.
///
/// On a device the arena and both counters lie in device memory, and the host overflow in host memory that
/// is pinned and mapped into the device at the same address (pinned_memory()): kernels reach it over the
/// link, slowly, and the host may look at it when the stream is done.
///
/// Either region may be missing: then its counter is null, and its size 0. Not both.
struct overflow_arena {
  void* data = nullptr;  ///< 16-byte aligned
  std::uint64_t bytes = 0;
  std::uint64_t* claimed = nullptr;
  void* host_data = nullptr;  ///< 16-byte aligned
  std::uint64_t host_bytes = 0;
  std::uint64_t* host_claimed = nullptr;
};

/// Where encoded bytes go. `data` is 16-byte aligned. `bytes` is the slot's capacity: fixed-size encodings
/// need their bound, bitmap and csr at least what stands before the payloads. `overflow` may be null (no
/// overflow). `report` must not be null and must have been zeroed.
struct encoded_view {
  void* data = nullptr;
  std::size_t bytes = 0;
  const overflow_arena* overflow = nullptr;
  encode_report* report = nullptr;
};

/// Where encoded bytes come from. `report` receives status bits of the decode and supplies flags/checksum.
struct const_encoded_view {
  const void* data = nullptr;
  std::size_t bytes = 0;
  const overflow_arena* overflow = nullptr;
  encode_report* report = nullptr;
};

/// Encoded bytes with all that a reader must know of them. decode(), the backward calls of layers, exports
/// and size queries take it; stashed_tensor::stored() gives it. Regular value type; owns nothing.
struct encoded_tensor {
  encoding how{};           ///< how the tensor is encoded
  dtype type = dtype::f32;  ///< of the dense tensor; masks and pooling codes are the same for all types
  shape dims{};             ///< of the dense tensor; for pooling codes of the pooled one
  const_encoded_view bytes{};

  /// Count of elements that are encoded.
  constexpr std::int64_t elements() const noexcept { return dims.elements(); }
};

/// Workspace of a call, 64-byte aligned.
struct workspace_view {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Encodes `input` (f32, f16, bf16; raw also u8 and s32; sign_mask also u8 where bit = value != 0; dense or
/// pitched). A cast of a 16-bit type goes to fewer bits than 16.
///
/// Kinds: raw, shape_only, sign_mask, range_mask, bitmap, csr, cast. window_index and relu_pool are written
/// by the pooling layers of pool.hpp.
/// Aliasing: input, output, report, arena and workspace must not overlap (see above).
/// Overflow: bitmap and csr tiles that do not fit the slot go to the overflow arena, when that is full to the
/// host overflow; only when all three are full is status_capacity set, and report->nonzeros still holds the
/// exact count. Nothing is written outside.
/// Determinism: bytes depend on the input only (canonical form) as long as every tile fits the slot.
/// On a device that holds with context.canonical; else tiles lie in the order in which blocks finish.
/// Throws error(invalid_argument / unsupported / capacity_exceeded) before anything is written.
STASH_API void encode(const encoding& e, const const_tensor_view& input, const encoded_view& output,
                      const workspace_view& workspace, const execution_context& context);

/// Decodes into `output` (dense or pitched, of as many elements as the encoded tensor and, but for masks, of
/// its type). Throws as encode(); capacity_exceeded if the input is shorter than the encoding's fixed part.
///
/// Kinds: raw, bitmap, csr, cast (dense values); sign_mask and range_mask into u8, f32, f16 or bf16, whatever
/// they were taken from: 1 where the bit is set, else +0. shape_only and pooling codes have no dense form
/// here and throw error(unsupported); for window_index pool.hpp has decode_window_index().
/// Any bytes are safe: reads and writes stay inside the given buffers. Bytes that contradict the descriptor
/// set status_corrupt (tiles whose payload was never stored: status_capacity); affected tiles become zeros.
/// With STASH_VERIFY=1 in the environment, on the host, encode() of a lossless value encoding leaves a
/// checksum in the report, decode() sets status_verification on a difference, and canonicalise() does so in
/// input's report and passes the checksum on.
STASH_API void decode(const encoded_tensor& input, const tensor_view& output, const workspace_view& workspace,
                      const execution_context& context);

/// Copies an encoded tensor into its canonical bytes: tiles in order, all in the slot (docs/format.md). What
/// an encoder of this back end wrote without overflow is canonical already; what came from another device, or
/// overflowed, need not be. Fixed-size encodings are copied. `output` must not overlap `input` or its arena,
/// and needs encoded_bytes_exact bytes for the tensor; with fewer, status_capacity is set in output's report.
/// Tiles that cannot be read set status_corrupt (or status_capacity) in input's report and become tiles whose
/// values are lost: never_stored entries. Throws as encode().
STASH_API void canonicalise(const encoded_tensor& input, const encoded_view& output,
                            const execution_context& context);

/// True if the environment variable STASH_VERIFY is "1" (read once).
STASH_API bool verification_enabled() noexcept;

}  // namespace stash
