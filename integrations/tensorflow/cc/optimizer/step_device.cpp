// SPDX-License-Identifier: Apache-2.0
#include "optimizer/step_device.hpp"

#include <utility>

#include "absl/strings/match.h"
#include "tensorflow/core/common_runtime/device_set.h"

namespace stash_tf {

namespace {

using tensorflow::DeviceProperties;
using tensorflow::grappler::Cluster;

// Null: not known.
const DeviceProperties* properties_of(const Cluster* cluster, const std::string& device) {
  if (cluster == nullptr) return nullptr;
  const auto& devices = cluster->GetDevices();
  const auto found = devices.find(device);
  return found == devices.end() ? nullptr : &found->second;
}

// The machine of docs/machines.md that is nearest to a device's model.
std::string machine_like(const std::string& model) {
  static constexpr std::pair<const char*, const char*> known[] = {
      {"H100", "h200"}, {"H200", "h200"}, {"A100", "a100"},    {"RTX", "rtx"},
      {"GTX", "rtx"},   {"TITAN", "rtx"}, {"M40", "m40_12gb"}, {"K40", "k40_12gb"}};
  for (const auto& [word, machine] : known)
    if (absl::StrContains(model, word)) return machine;
  return "a100";
}

}  // namespace

step_device device_of(const Cluster* cluster, const std::string& name, const settings& request) {
  const DeviceProperties* properties = properties_of(cluster, name);
  step_device device;
  if (properties != nullptr) {
    device.bytes = properties->memory_size();
    device.model = properties->model();
  }
  if (request.device_bytes > 0) device.bytes = request.device_bytes;
  return device;
}

int threads_of(const Cluster* cluster) {
  const tensorflow::DeviceSet* devices = cluster == nullptr ? nullptr : cluster->GetDeviceSet();
  if (devices == nullptr) return 1;
  for (const tensorflow::Device* device : devices->devices())
    if (device->IsLocal() && device->device_type() == tensorflow::DEVICE_CPU)
      return device->tensorflow_cpu_worker_threads()->num_threads;
  return 1;
}

settings wishes_on(const step_device& device, bool in_another_memory, settings request) {
  if (!in_another_memory) request.swap = false;
  if (request.swap && request.machine.empty()) request.machine = machine_like(device.model);
  return request;
}

}  // namespace stash_tf
