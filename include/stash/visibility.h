// SPDX-License-Identifier: Apache-2.0
#ifndef STASH_VISIBILITY_H
#define STASH_VISIBILITY_H
/* STASH_API marks what the library exports; everything else is compiled with hidden visibility. C and C++. */

#if defined(__GNUC__)
#define STASH_API __attribute__((visibility("default")))
#else
#define STASH_API
#endif

#endif
