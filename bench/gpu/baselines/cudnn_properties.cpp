// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/baselines/cudnn_properties.hpp"

#include "bench/gpu/device.hpp"

#if defined(STASH_HAS_CUDNN)
#include <cudnn_version.h>
#endif

#if defined(STASH_HAS_CUDNN) && CUDNN_VERSION >= 90800

#include "bench/gpu/baselines/cudnn_descriptor.hpp"

namespace stash::gpu {
namespace {

constexpr std::size_t first_version = 90800;

struct cudnn : cudnn_backend {
  decltype(::cudnnGetVersion)* version = library["cudnnGetVersion"];
};

/// Returns how many characters there are.
std::int64_t read(const cudnn_descriptor& properties, std::int64_t capacity, void* to) {
  return properties.read(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, capacity, to);
}

}  // namespace

std::string cudnn_device_properties() {
  const cudnn api;
  if (api.version() < first_version)
    throw failure("cuDNN " + std::to_string(api.version()) + " is older than 9.8");
  cudnn_descriptor properties(api, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, std::int32_t{0}).finalize();
  std::string text(static_cast<std::size_t>(read(properties, 0, nullptr)), '\0');
  text.resize(
      static_cast<std::size_t>(read(properties, static_cast<std::int64_t>(text.size()), text.data())));
  // A zero after the text would count as well.
  return text.substr(0, text.find('\0'));
}

}  // namespace stash::gpu

#else

namespace stash::gpu {

std::string cudnn_device_properties() {
  throw failure("built without the headers of cuDNN 9.8 or newer");
}

}  // namespace stash::gpu

#endif
