// SPDX-License-Identifier: Apache-2.0
#include "fuzz/data_checks.hpp"

#include <zlib.h>

namespace stash::fuzz {

void require_consistent(const data::dataset& d) {
  require(d.count > 0, "there is an image");
  require(d.images.size() == static_cast<std::size_t>(d.count * d.image_bytes()), "all pixels are there");
  require(d.labels.size() == static_cast<std::size_t>(d.count), "all labels are there");
  for (const std::int32_t label : d.labels)
    require(label >= 0 && label < d.classes, "labels are in range");
}

bytes zipped(const bytes& content) {
  z_stream stream{};
  // The smallest window and little memory: starting is most of the work on what is this short.
  constexpr int gz_window = 9 + 16, memory_level = 1;
  require(deflateInit2(&stream, 1, Z_DEFLATED, gz_window, memory_level, Z_DEFAULT_STRATEGY) == Z_OK,
          "zlib starts");
  bytes out(deflateBound(&stream, content.size()));
  stream.next_in = const_cast<Bytef*>(content.data());
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  require(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib ends");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace stash::fuzz
