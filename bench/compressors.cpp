// SPDX-License-Identifier: Apache-2.0
#include "bench/compressors.hpp"

#include <fmt/format.h>
#include <lz4.h>
#include <zfp.h>
#include <zstd.h>

#include <cstring>
#include <memory>

#include "stash/error.hpp"

namespace stash::bench {
namespace {

void check(bool fine, const char* name, const char* what) {
  if (!fine)
    throw error(errc::internal, fmt::format("{}: expected to {} the tensor, got a failure", name, what));
}

char* chars(std::span<std::byte> s) {
  return reinterpret_cast<char*>(s.data());
}

const char* chars(std::span<const std::byte> s) {
  return reinterpret_cast<const char*>(s.data());
}

compressor lz4() {
  return {"lz4", true,
          [](const dense_values& x) {
            return static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(x.values.size_bytes())));
          },
          [](const dense_values& x, std::span<std::byte> to) {
            const int size =
                LZ4_compress_default(chars(std::as_bytes(x.values)), chars(to),
                                     static_cast<int>(x.values.size_bytes()), static_cast<int>(to.size()));
            check(size > 0, "lz4", "compress");
            return static_cast<std::size_t>(size);
          },
          [](std::span<const std::byte> from, const dense_values& x) {
            const auto bytes = static_cast<int>(x.values.size_bytes());
            const int size = LZ4_decompress_safe(chars(from), chars(std::as_writable_bytes(x.values)),
                                                 static_cast<int>(from.size()), bytes);
            check(size == bytes, "lz4", "decompress");
          }};
}

compressor zstd(int level) {
  const std::shared_ptr<ZSTD_CCtx> writer(ZSTD_createCCtx(), ZSTD_freeCCtx);
  const std::shared_ptr<ZSTD_DCtx> reader(ZSTD_createDCtx(), ZSTD_freeDCtx);
  return {fmt::format("zstd_level_{}", level), true,
          [](const dense_values& x) { return ZSTD_compressBound(x.values.size_bytes()); },
          [=](const dense_values& x, std::span<std::byte> to) {
            const std::size_t size = ZSTD_compressCCtx(writer.get(), to.data(), to.size(), x.values.data(),
                                                       x.values.size_bytes(), level);
            check(ZSTD_isError(size) == 0U, "zstd", "compress");
            return size;
          },
          [=](std::span<const std::byte> from, const dense_values& x) {
            const std::size_t size = ZSTD_decompressDCtx(reader.get(), x.values.data(), x.values.size_bytes(),
                                                         from.data(), from.size());
            check(size == x.values.size_bytes(), "zstd", "decompress");
          }};
}

// A field and a stream over a buffer, for one call.
class zfp_call {
 public:
  using mode_setter = void (*)(zfp_stream* stream, uint dimensions);

  zfp_call(const dense_values& x, mode_setter set_mode, const void* memory, std::size_t bytes)
      : field_(zfp_field_alloc(), zfp_field_free),
        stream_(zfp_stream_open(nullptr), zfp_stream_close),
        bits_(stream_open(const_cast<void*>(memory), bytes), stream_close) {  // reading does not write to it
    zfp_field_set_pointer(field_.get(), x.values.data());
    zfp_field_set_type(field_.get(), zfp_type_float);
    set_size(x.dims);
    set_mode(stream_.get(), zfp_field_dimensionality(field_.get()));
    zfp_stream_set_bit_stream(stream_.get(), bits_.get());
    zfp_stream_rewind(stream_.get());
  }

  std::size_t bound() const { return zfp_stream_maximum_size(stream_.get(), field_.get()); }
  std::size_t compress() const { return zfp_compress(stream_.get(), field_.get()); }
  std::size_t decompress() const { return zfp_decompress(stream_.get(), field_.get()); }

 private:
  // zfp counts dimensions from the fastest.
  void set_size(std::span<const std::int64_t> dims) {
    const auto size = [&](std::size_t from_last) {
      return static_cast<std::size_t>(dims[dims.size() - 1 - from_last]);
    };
    switch (dims.size()) {
      case 1:
        return zfp_field_set_size_1d(field_.get(), size(0));
      case 2:
        return zfp_field_set_size_2d(field_.get(), size(0), size(1));
      case 3:
        return zfp_field_set_size_3d(field_.get(), size(0), size(1), size(2));
      case 4:
        return zfp_field_set_size_4d(field_.get(), size(0), size(1), size(2), size(3));
      default:
        throw error(errc::unsupported, fmt::format("zfp: dims: expected 1 to 4, got {}", dims.size()));
    }
  }

  std::unique_ptr<zfp_field, decltype(&zfp_field_free)> field_;
  std::unique_ptr<zfp_stream, decltype(&zfp_stream_close)> stream_;
  std::unique_ptr<bitstream, decltype(&stream_close)> bits_;
};

compressor zfp(std::string name, bool lossless, zfp_call::mode_setter set_mode) {
  return {std::move(name), lossless,
          [=](const dense_values& x) { return zfp_call(x, set_mode, nullptr, 0).bound(); },
          [=](const dense_values& x, std::span<std::byte> to) {
            const std::size_t size = zfp_call(x, set_mode, to.data(), to.size()).compress();
            check(size > 0, "zfp", "compress");
            return size;
          },
          [=](std::span<const std::byte> from, const dense_values& x) {
            check(zfp_call(x, set_mode, from.data(), from.size()).decompress() > 0, "zfp", "decompress");
          }};
}

}  // namespace

std::vector<compressor> compressors() {
  return {
      lz4(),
      zstd(-1),
      zfp("zfp_reversible", true, [](zfp_stream* s, uint) { zfp_stream_set_reversible(s); }),
      zfp("zfp_rate_8", false,
          [](zfp_stream* s, uint dims) { zfp_stream_set_rate(s, 8, zfp_type_float, dims, zfp_false); }),
      zfp("zfp_accuracy_0.01", false, [](zfp_stream* s, uint) { zfp_stream_set_accuracy(s, 0.01); }),
  };
}

}  // namespace stash::bench
