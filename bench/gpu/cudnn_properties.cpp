#include "bench/gpu/cudnn_properties.hpp"

#include "bench/gpu/device.hpp"

#if defined(STASH_HAS_CUDNN)
#include <cudnn_version.h>
#endif

#if defined(STASH_HAS_CUDNN) && CUDNN_VERSION >= 90800

#include <cudnn_backend.h>

#include <cstdint>

#include "bench/gpu/cudnn_library.hpp"

namespace stash::gpu {
namespace {

constexpr std::size_t first_version = 90800;

struct cudnn : cudnn_library {
  decltype(::cudnnGetVersion)* version = library["cudnnGetVersion"];
  decltype(::cudnnBackendCreateDescriptor)* create = library["cudnnBackendCreateDescriptor"];
  decltype(::cudnnBackendDestroyDescriptor)* destroy = library["cudnnBackendDestroyDescriptor"];
  decltype(::cudnnBackendSetAttribute)* set_attribute = library["cudnnBackendSetAttribute"];
  decltype(::cudnnBackendGetAttribute)* get_attribute = library["cudnnBackendGetAttribute"];
  decltype(::cudnnBackendFinalize)* finalize = library["cudnnBackendFinalize"];
};

class device_descriptor {
 public:
  explicit device_descriptor(std::int32_t device) {
    if (api_.version() < first_version)
      throw failure("cuDNN " + std::to_string(api_.version()) + " is older than 9.8");
    api_.check(api_.create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &descriptor_),
               "cudnnBackendCreateDescriptor");
    try {
      api_.check(
          api_.set_attribute(descriptor_, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &device),
          "cudnnBackendSetAttribute");
      api_.check(api_.finalize(descriptor_), "cudnnBackendFinalize");
    } catch (...) {
      (void)api_.destroy(descriptor_);
      throw;
    }
  }
  ~device_descriptor() { (void)api_.destroy(descriptor_); }
  device_descriptor(const device_descriptor&) = delete;
  device_descriptor& operator=(const device_descriptor&) = delete;

  std::string json() const {
    std::string text;
    std::int64_t size = read(nullptr, 0);
    text.resize(static_cast<std::size_t>(size));
    size = read(text.data(), size);
    text.resize(static_cast<std::size_t>(size));
    // A zero behind the text would count as well.
    return text.substr(0, text.find('\0'));
  }

 private:
  /// Returns how many characters there are.
  std::int64_t read(void* to, std::int64_t room) const {
    std::int64_t size = 0;
    api_.check(api_.get_attribute(descriptor_, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                  room, &size, to),
               "cudnnBackendGetAttribute");
    return size;
  }

  cudnn api_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace

std::string cudnn_device_properties() {
  return device_descriptor(0).json();
}

}  // namespace stash::gpu

#else

namespace stash::gpu {

std::string cudnn_device_properties() {
  throw failure("built without the headers of cuDNN 9.8 or newer");
}

}  // namespace stash::gpu

#endif
