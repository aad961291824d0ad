// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the shared library offers to the Python package, by ctypes. Texts end with a zero byte; the caller
/// frees them with stash_tf_free(). Every function may be called from any thread; none throws.

#include <cstdint>

#define STASH_TF_API __attribute__((visibility("default")))

extern "C" {

/// "2.21.0": the TensorFlow that this library was built for. Valid for ever.
STASH_TF_API const char* stash_tf_built_for();

/// Version of the Stash library inside, as stash_version(). Valid for ever.
STASH_TF_API const char* stash_tf_core_version();

/// The value formats of the Stash library inside: JSON, a list of {"name", "scaled"}.
STASH_TF_API char* stash_tf_formats();

/// Takes these settings (JSON, as the parameter "settings" of the graph optimizer) where an optimizer gets
/// none of its own: with the plugin hook. 0, or an error number of c_api.h; *message, if not null, is then
/// the reason.
STASH_TF_API std::int32_t stash_tf_configure(const char* settings, char** message);

/// Registers the optimizer as a plugin for a device type ("CPU"): the hook without private Python. It stays
/// registered until the process ends; settings with "policy": "none" make it idle. A second call does
/// nothing.
STASH_TF_API std::int32_t stash_tf_register_plugin(const char* device, char** message);

/// What the optimizer did with each graph that it saw since the last reset under settings of this generation
/// (0: of any): JSON, see README.md, "Log and counters".
STASH_TF_API char* stash_tf_graphs(std::int64_t generation);
/// The number of the newest of these graphs; a reset does not start it anew.
STASH_TF_API std::int64_t stash_tf_last_serial();
STASH_TF_API void stash_tf_reset_graphs();

/// How often each of our kernels ran on which tensor, and what it moved: JSON, see README.md, "Log
/// and counters".
STASH_TF_API char* stash_tf_counters();
STASH_TF_API void stash_tf_reset_counters();
/// A number that changes when an execution has more elements than all before it of its kernel and tensor, and
/// when an encoder finds that its format does not suit the values any more. Quick.
STASH_TF_API std::int64_t stash_tf_surprises();

/// Null is fine.
STASH_TF_API void stash_tf_free(char* text);

}  // extern "C"
