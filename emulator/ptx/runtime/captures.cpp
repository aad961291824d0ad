// SPDX-License-Identifier: Apache-2.0
#include "ptx/runtime/captures.hpp"

#include <algorithm>
#include <utility>

#include "ptx/runtime/cuda_runtime.hpp"
#include "ptx/runtime/environment.hpp"

namespace stash::ptx {
namespace {

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

std::vector<std::shared_ptr<capture>>& under_way() {
  static auto& all = *new std::vector<std::shared_ptr<capture>>;
  return all;
}

cudaError_t spoiled(capture& c, cudaError_t result) {
  c.spoiled = true;
  return result;
}

/// The default stream waits for such streams, and a recording cannot say that.
capture* that_default_would_wait_for() {
  for (const auto& c : under_way()) {
    for (const capture::member& m : c->members)
      if (m.stream->kind == stream_kind::blocking) return c.get();
  }
  return nullptr;
}

void end(const std::shared_ptr<capture>& c) {
  c->over = true;
  for (const capture::member& m : c->members)
    m.stream->captured = nullptr;
  std::erase(under_way(), c);
}

void raise(std::vector<std::size_t>& seen, const std::vector<std::size_t>& to) {
  seen.resize(std::max(seen.size(), to.size()));
  for (std::size_t m = 0; m < to.size(); ++m)
    seen[m] = std::max(seen[m], to[m]);
}

/// What a graph does first, second and so on, if of all that could be next it takes what was recorded last.
std::vector<work> latest_first(std::vector<capture::step> steps, std::size_t members) {
  std::vector<work> ordered;
  std::vector<std::size_t> done(members);
  const auto can_be_next = [&](const capture::step& s) {
    if (s.number != done[s.member] + 1) return false;
    for (std::size_t m = 0; m < s.after.size(); ++m)
      if (done[m] < s.after[m]) return false;
    return true;
  };
  while (!steps.empty()) {
    const auto next = std::find_if(steps.rbegin(), steps.rend(), can_be_next);
    ++done[next->member];
    ordered.push_back(std::move(next->what));
    steps.erase(std::next(next).base());
  }
  return ordered;
}

}  // namespace

capture::member& capture::member_of(cudaStream_t stream) {
  const auto at =
      std::find_if(members.begin(), members.end(), [&](const member& m) { return m.stream == stream; });
  if (at != members.end()) return *at;
  return members.emplace_back(member{stream, 0, std::vector<std::size_t>(members.size() + 1)});
}

bool capture::is_joined() const {
  const std::vector<std::size_t>& seen = members[0].seen;
  for (std::size_t m = 0; m < members.size(); ++m)
    if (members[m].enqueued != (m < seen.size() ? seen[m] : 0)) return false;
  return true;
}

bool spoils_recordings() {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return false;
  bool any = false;
  for (const auto& c : under_way()) {
    if (c->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool both_global =
        c->mode == cudaStreamCaptureModeGlobal && mode_of_thread == cudaStreamCaptureModeGlobal;
    if (c->thread != std::this_thread::get_id() && !both_global) continue;
    c->spoiled = true;
    any = true;
  }
  return any;
}

cudaError_t enqueue(cudaStream_t handle, work what, std::vector<stream_position> after) {
  const cudaStream_t stream = stream_of(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (is_default(stream)) {
    if (capture* const c = that_default_would_wait_for()) return spoiled(*c, cudaErrorStreamCaptureImplicit);
  }
  if (stream->captured == nullptr) return add(stream->to_do, std::move(what), std::move(after));
  capture& c = *stream->captured;
  if (c.spoiled) return cudaErrorStreamCaptureInvalidated;
  capture::member& m = c.member_of(stream);
  const auto number = static_cast<std::size_t>(&m - c.members.data());
  c.recorded.push_back({std::move(what), number, m.enqueued + 1, m.seen});
  m.seen[number] = ++m.enqueued;
  return cudaSuccess;
}

std::optional<captured_position> position_in(cudaStream_t stream) {
  if (stream->captured == nullptr) return std::nullopt;
  return captured_position{stream->captured, stream->captured->member_of(stream).seen};
}

cudaError_t continue_after(cudaStream_t stream, const captured_position& position) {
  capture& c = *position.in;
  if (c.over) return stream->captured == nullptr ? cudaErrorCapturedEvent : continue_after_others(stream);
  if (is_default(stream)) return spoiled(c, cudaErrorStreamCaptureImplicit);
  if (stream->captured != nullptr && stream->captured != position.in) {
    c.spoiled = true;
    return spoiled(*stream->captured, cudaErrorStreamCaptureMerge);
  }
  if (c.spoiled) return cudaErrorStreamCaptureInvalidated;
  stream->captured = position.in;
  raise(c.member_of(stream).seen, position.seen);
  return cudaSuccess;
}

cudaError_t continue_after_others(cudaStream_t stream) {
  return stream->captured == nullptr ? cudaSuccess
                                     : spoiled(*stream->captured, cudaErrorStreamCaptureIsolation);
}

cudaError_t refused_if_captured(cudaStream_t stream) {
  return stream->captured == nullptr ? cudaSuccess
                                     : spoiled(*stream->captured, cudaErrorStreamCaptureUnsupported);
}

cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (is_default(stream)) return cudaErrorStreamCaptureUnsupported;
  if (stream->captured != nullptr) return cudaErrorIllegalState;
  auto c = std::make_shared<capture>();
  c->mode = mode;
  c->thread = std::this_thread::get_id();
  c->member_of(stream);
  stream->captured = c;
  under_way().push_back(std::move(c));
  return cudaSuccess;
}

cudaError_t end_capture(cudaStream_t stream, std::vector<work>& recorded) {
  const std::shared_ptr<capture> c = stream->captured;
  if (c == nullptr) return cudaErrorIllegalState;
  if (c->members[0].stream != stream) return spoiled(*c, cudaErrorStreamCaptureUnmatched);
  if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
    return spoiled(*c, cudaErrorStreamCaptureWrongThread);
  end(c);
  if (c->spoiled) return cudaErrorStreamCaptureInvalidated;
  if (!c->is_joined()) return cudaErrorStreamCaptureUnjoined;
  if (streams_are_eager()) {
    for (capture::step& s : c->recorded)
      recorded.push_back(std::move(s.what));
  } else {
    recorded = latest_first(std::move(c->recorded), c->members.size());
  }
  return cudaSuccess;
}

extern "C" cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(mode_of_thread, *mode);
  return cudaSuccess;
}

}  // namespace stash::ptx
