#pragma once
/// \file
/// Version of the Stash library (semantic versioning of the documented API).

#define STASH_VERSION_MAJOR 0
#define STASH_VERSION_MINOR 1
#define STASH_VERSION_PATCH 0
#define STASH_VERSION_STRING "0.1.0"
