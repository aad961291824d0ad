// SPDX-License-Identifier: Apache-2.0
// Arguments of swapped and swapper.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "encoders/detail.hpp"
#include "encoders/device/backend.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/message.hpp"
#include "encoders/public_call.hpp"
#include "runtime/memory/stash_access.hpp"
#include "runtime/swap/swap_core.hpp"
#include "stash/swap.hpp"

namespace stash {
namespace {

using encoders::fail;
using runtime::swap_record;

std::string_view text(memory_space space) noexcept {
  switch (space) {
    case memory_space::host:
      return "host memory";
    case memory_space::device:
      return "device memory";
    case memory_space::pinned_host:
      return "pinned host memory";
  }
  return "an unknown space";
}

bool reaches(memory_space space, memory_space memory) noexcept {
  return (space == memory_space::device) == (memory == memory_space::device);
}

/// The device is named by an option here, not by a context.
void check_device(std::string_view function) {
  try {
    encoders::device::check_available(function);
  } catch (const error& e) {
    if (e.code() != errc::unsupported) throw;
    fail(e.code(), function, "options.space", "host, or a build with CUDA", "device");
  }
}

swapper_options completed(const swapper_options& options) {
  constexpr std::string_view function = "swapper";
  swapper_options all = options;
  const bool device = options.space == memory_space::device;
  if (!device && options.space != memory_space::host) {
    fail(errc::invalid_argument, function, "options.space", "host or device", text(options.space));
  }
  if (all.host == nullptr) all.host = device ? &pinned_memory() : &host_memory();
  if (all.memory == nullptr) all.memory = device ? &device_memory() : &host_memory();
  const memory_space host = all.host->space(), memory = all.memory->space();
  if (device ? host != memory_space::pinned_host
             : host == memory_space::device || !encoders::is_known(host)) {
    fail(errc::invalid_argument, function, "options.host", device ? "pinned host memory" : "host memory",
         text(host));
  }
  if (!reaches(all.space, memory) || !encoders::is_known(memory)) {
    fail(errc::invalid_argument, function, "options.memory", text(all.space), text(memory));
  }
  if (all.ahead < 0) {
    fail(errc::invalid_argument, function, "options.ahead", "at least 0", fmt::format("{}", all.ahead));
  }
  if (all.chunk_bytes == 0) fail(errc::invalid_argument, function, "options.chunk_bytes", "at least 1", "0");
  if (device) check_device(function);
  return all;
}

std::shared_ptr<runtime::swap_core> make_core(const swapper_options& options,
                                              const runtime::swap_hook& hook) {
  const swapper_options all = completed(options);
  return all.space == memory_space::device ? runtime::make_swap_streams(all, hook)
                                           : runtime::make_swap_threads(all, hook);
}

void check_process(std::string_view function, std::string_view argument, const runtime::swap_core& core) {
  if (!core.elsewhere()) return;
  fail(errc::invalid_argument, function, argument, "the process that made the swapper",
       "one that was forked from it");
}

void check_space(std::string_view function, const runtime::swap_core& core,
                 const execution_context& context) {
  check_process(function, "this", core);
  encoders::check_context(function, context);
  if (context.space != core.space()) {
    fail(errc::invalid_argument, function, "context", fmt::format("one of {}", text(core.space())),
         fmt::format("one of {}", text(context.space)));
  }
}

std::string label(const swap_record& r) {
  return r.name.empty() ? "this" : shortened(r.name);
}

/// The copy on the host: the encoded bytes, then the report.
encoded_tensor stored_on_host(const swap_record& r) noexcept {
  return {r.how,
          r.type,
          r.dims,
          {r.host.data, r.encoded_bytes, nullptr,
           reinterpret_cast<encode_report*>(r.host.data + r.encoded_bytes)}};
}

/// A tensor in memory that stays the swapper's.
class borrowed {
 public:
  explicit borrowed(stashed_tensor tensor) noexcept : tensor_(std::move(tensor)) {}
  ~borrowed() { runtime::stash_access::release(tensor_); }
  borrowed(const borrowed&) = delete;
  borrowed& operator=(const borrowed&) = delete;
  const stashed_tensor* operator->() const noexcept { return &tensor_; }

 private:
  stashed_tensor tensor_;
};

}  // namespace

// --- handles ---------------------------------------------------------------------------------------------

swapped::swapped() noexcept = default;

swapped::swapped(std::shared_ptr<runtime::swap_core> core, std::unique_ptr<swap_record> record) noexcept
    : core_(std::move(core)), record_(std::move(record)) {}

swapped::swapped(swapped&& other) noexcept = default;

swapped& swapped::operator=(swapped&& other) noexcept {
  if (this == &other) return *this;
  reset();
  core_ = std::move(other.core_);
  record_ = std::move(other.record_);
  return *this;
}

swapped::~swapped() {
  reset();
}

void swapped::reset() noexcept {
  if (record_ != nullptr && core_->elsewhere()) {
    // What a thread was doing to it when the process was forked, nobody knows.
    static_cast<void>(record_.release());
    core_->abandon(core_);
  } else if (record_ != nullptr) {
    core_->forget(*record_);
  }
  record_.reset();
  core_.reset();
}

std::size_t swapped::bytes() const noexcept {
  return empty() ? 0 : record_->bytes;
}

std::string_view swapped::name() const noexcept {
  return empty() ? std::string_view() : std::string_view(record_->name);
}

runtime::swap_core& swapped::core_for(std::string_view function, const execution_context& context) const {
  runtime::swap_core& core = core_for(function);
  check_space(function, core, context);
  return core;
}

runtime::swap_core& swapped::core_for(std::string_view function) const {
  if (empty()) fail(errc::invalid_argument, function, "this", "a tensor on the host", "an empty handle");
  check_process(function, label(*record_), *core_);
  if (core_->closed()) {
    fail(errc::invalid_argument, function, label(*record_), "a swapper that still exists", "none");
  }
  return *core_;
}

void swapped::wait_out(const execution_context& context) try {
  core_for("swapped::wait_out", context).wait_out(*record_, context);
} catch (...) {
  encoders::rethrow("swapped::wait_out");
}

bool swapped::out_ended() const try {
  return core_for("swapped::out_ended").out_ended(*record_);
} catch (...) {
  encoders::rethrow("swapped::out_ended");
}

void swapped::swap_in(const execution_context& context) try {
  core_for("swapped::swap_in", context).begin_in(*record_, context);
} catch (...) {
  encoders::rethrow("swapped::swap_in");
}

void swapped::swap_in(void* to, std::size_t bytes, const execution_context& context) try {
  constexpr std::string_view function = "swapped::swap_in";
  runtime::swap_core& core = core_for(function, context);
  if (bytes != record_->bytes) {
    const std::string& name = record_->name;
    fail(errc::invalid_argument, function, "bytes",
         fmt::format("the {} bytes of {}", record_->bytes, name.empty() ? "the tensor" : shortened(name)),
         fmt::format("{}", bytes));
  }
  if (to == nullptr && bytes != 0) fail(errc::invalid_argument, function, "to", "an address", "null");
  core.begin_in_to(*record_, to, context);
} catch (...) {
  encoders::rethrow("swapped::swap_in");
}

void* swapped::wait_in(const execution_context& context) try {
  return core_for("swapped::wait_in", context).wait_in(*record_, context);
} catch (...) {
  encoders::rethrow("swapped::wait_in");
}

void swapped::leave(const execution_context& context) try {
  core_for("swapped::leave", context).leave(*record_, context);
} catch (...) {
  encoders::rethrow("swapped::leave");
}

void swapped::restore(const tensor_view& output, const execution_context& context, bool check) try {
  constexpr std::string_view function = "swapped::restore";
  runtime::swap_core& core = core_for(function, context);
  const swap_record& r = *record_;
  const bool encoded = r.what == swap_record::form::encoded;
  if (!encoded && r.what != swap_record::form::tensor) {
    fail(errc::invalid_argument, function, label(r), "a tensor", "bytes of which no more is known");
  }
  if (encoded) {
    runtime::check_restore(function, r.name, stored_on_host(r), output, context);
  } else {
    encoders::check_view(function, "output", output, r.type, context.space);
    encoders::check_elements(function, "output", output, r.dims.elements());
    if (!const_tensor_view(output).dense()) {
      fail(errc::invalid_argument, function, "output", "a dense tensor", "a pitched one");
    }
  }
  std::string name = r.name;
  core.claim(function, *record_);
  const bool handed_out = core.handed_out(r);
  if (!encoded && !core.comes_here(r)) {
    core.begin_in_to(*record_, output.data, context);
    try {
      core.wait_in(*record_, context);
    } catch (...) {
      core.abandon_elsewhere(*record_);
      throw;
    }
    return;
  }
  const void* const here = core.wait_in(*record_, context);
  if (here == output.data) return;
  try {
    if (encoded) {
      const borrowed tensor(core.borrow(*record_, std::move(name), context));
      tensor->restore(output, context);
      if (check) tensor->check(context);
    } else {
      core.copy_here(output.data, here, r.bytes, context);
    }
  } catch (...) {
    // Memory that the caller knows of stays where it was.
    if (!handed_out) core.leave(*record_, context);
    throw;
  }
  core.leave(*record_, context);
} catch (...) {
  encoders::rethrow("swapped::restore");
}

stashed_tensor swapped::take(const execution_context& context) try {
  constexpr std::string_view function = "swapped::take";
  runtime::swap_core& core = core_for(function, context);
  if (record_->what != swap_record::form::encoded) {
    fail(errc::invalid_argument, function, label(*record_), "a stashed tensor", "one that is not encoded");
  }
  std::string name = record_->name;
  core.claim(function, *record_);
  core.wait_in(*record_, context);
  return core.take(*record_, std::move(name), context);
} catch (...) {
  encoders::rethrow("swapped::take");
}

// --- swapper ---------------------------------------------------------------------------------------------

swapper::swapper(const swapper_options& options) try : core_(make_core(options, {})) {
} catch (...) {
  encoders::rethrow("swapper");
}

swapper::swapper(std::shared_ptr<runtime::swap_core> core) noexcept : core_(std::move(core)) {}

swapper::~swapper() {
  if (core_->elsewhere()) {
    core_->abandon(core_);
  } else {
    core_->close();
  }
}

swapped swapper::begin(std::unique_ptr<swap_record> record, stashed_tensor* owned,
                       const swap_request& request, const execution_context& context) {
  swap_record& r = *record;
  if (r.name.empty()) r.name = request.name;
  r.priority = request.priority;
  r.needed_at = request.needed_at;
  r.host = core_->take_block(r.bytes);
  if (r.host.data == nullptr) {
    if (request.empty_if_full) return {};
    fail(errc::out_of_memory, "swapper::swap_out", r.name.empty() ? "tensor" : shortened(r.name),
         fmt::format("{} bytes of host memory", runtime::host_blocks::rounded(r.bytes)),
         core_->host_limit() == SIZE_MAX
             ? std::string("none")
             : fmt::format("{} of {} in use", core_->host_bytes(), core_->host_limit()));
  }
  try {
    core_->out(r, owned, context);
  } catch (...) {
    core_->give_block(r.host);
    throw;
  }
  return {core_, std::move(record)};
}

swapped swapper::swap_out(const void* data, std::size_t bytes, const swap_request& request,
                          const execution_context& context) try {
  constexpr std::string_view function = "swapper::swap_out";
  check_space(function, *core_, context);
  if (data == nullptr && bytes != 0) fail(errc::invalid_argument, function, "data", "an address", "null");
  auto record = std::make_unique<swap_record>();
  record->bytes = record->first_run = bytes;
  record->from[0] = static_cast<const unsigned char*>(data);
  return begin(std::move(record), nullptr, request, context);
} catch (...) {
  encoders::rethrow("swapper::swap_out");
}

swapped swapper::swap_out(const const_tensor_view& tensor, const swap_request& request,
                          const execution_context& context) try {
  constexpr std::string_view function = "swapper::swap_out";
  check_space(function, *core_, context);
  encoders::check_view(function, "tensor", tensor, tensor.type, context.space);
  if (!tensor.dense()) {
    fail(errc::invalid_argument, function, "tensor", "a dense tensor (a stashed_tensor packs others)",
         "a pitched one");
  }
  auto record = std::make_unique<swap_record>();
  record->what = swap_record::form::tensor;
  record->type = tensor.type;
  record->dims = tensor.dims;
  record->bytes = record->first_run = static_cast<std::size_t>(tensor.elements()) * size_of(tensor.type);
  record->from[0] = static_cast<const unsigned char*>(tensor.data);
  return begin(std::move(record), nullptr, request, context);
} catch (...) {
  encoders::rethrow("swapper::swap_out");
}

namespace {

/// How many of the encoded bytes go out.
std::size_t bytes_in_use(const stashed_tensor& tensor, const swap_request& request,
                         const execution_context& context) {
  const const_encoded_view stored = tensor.stored().bytes;
  if (!encoders::is_tiled(tensor.how().kind)) return stored.bytes;
  const std::size_t least = encoders::bytes_needed(tensor.how(), tensor.type(), tensor.dims().elements());
  std::size_t used = request.bytes_in_use;
  if (used > stored.bytes || (used != 0 && used < least)) {
    fail(errc::invalid_argument, "swapper::swap_out", "request.bytes_in_use",
         fmt::format("0, or {} to {}", least, stored.bytes), fmt::format("{}", used));
  }
  // A report that says less was not written by an encoder yet, or by none of ours.
  if (used == 0 && !encoders::on_device(context) && stored.report->slot_bytes >= least) {
    used = static_cast<std::size_t>(std::min<std::uint64_t>(stored.report->slot_bytes, stored.bytes));
  }
  return used == 0 ? stored.bytes : std::min(encoders::pad16(used), stored.bytes);
}

std::unique_ptr<swap_record> record_of(const runtime::swap_core& core, const stashed_tensor& tensor,
                                       const swap_request& request, const execution_context& context) {
  constexpr std::string_view function = "swapper::swap_out";
  check_space(function, core, context);
  if (tensor.empty()) {
    fail(errc::invalid_argument, function, "tensor", "a stashed tensor", "an empty handle");
  }
  if (const memory_space space = runtime::stash_access::space(tensor); !reaches(core.space(), space)) {
    fail(errc::invalid_argument, function, "tensor", text(core.space()), text(space));
  }
  const const_encoded_view stored = tensor.stored().bytes;
  auto record = std::make_unique<swap_record>();
  record->what = swap_record::form::encoded;
  record->how = tensor.how();
  record->type = tensor.type();
  record->dims = tensor.dims();
  record->encoded_bytes = bytes_in_use(tensor, request, context);
  record->bytes = record->encoded_bytes + sizeof(encode_report);
  // The report follows the bytes; what lies between does not go out.
  const bool all = record->encoded_bytes == stored.bytes;
  record->first_run = all ? record->bytes : record->encoded_bytes;
  record->from[0] = static_cast<const unsigned char*>(stored.data);
  record->from[1] = reinterpret_cast<const unsigned char*>(stored.report);
  record->name = request.name.empty() ? std::string_view(tensor.name()) : request.name;
  return record;
}

}  // namespace

swapped swapper::swap_out(const stashed_tensor& tensor, const swap_request& request,
                          const execution_context& context) try {
  return begin(record_of(*core_, tensor, request, context), nullptr, request, context);
} catch (...) {
  encoders::rethrow("swapper::swap_out");
}

swapped swapper::swap_out(stashed_tensor&& tensor, const swap_request& request,
                          const execution_context& context) try {
  return begin(record_of(*core_, tensor, request, context), &tensor, request, context);
} catch (...) {
  encoders::rethrow("swapper::swap_out");
}

void swapper::reached(std::int64_t position) try {
  check_process("swapper::reached", "this", *core_);
  core_->reached(position);
} catch (...) {
  encoders::rethrow("swapper::reached");
}

swap_statistics swapper::statistics() const try {
  check_process("swapper::statistics", "this", *core_);
  return core_->statistics();
} catch (...) {
  encoders::rethrow("swapper::statistics");
}

std::unique_ptr<swapper> runtime::swap_access::make(const swapper_options& options, const swap_hook& hook) {
  return std::unique_ptr<swapper>(new swapper(make_core(options, hook)));
}

}  // namespace stash
