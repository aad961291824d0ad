// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Version of the Stash library (semantic versioning of the documented API).

/// Incompatible changes of the C API.
#define STASH_VERSION_MAJOR 0
/// Additions; before 1.0 also changes of the C++ API.
#define STASH_VERSION_MINOR 1
/// Repairs.
#define STASH_VERSION_PATCH 0
/// "major.minor.patch".
#define STASH_VERSION_STRING "0.1.0"
