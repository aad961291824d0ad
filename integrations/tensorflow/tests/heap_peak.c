// SPDX-License-Identifier: Apache-2.0
/* Counts what a process has on its heap, preloaded by run_model.py --measure heap: TensorFlow's own profiler
   does not see the tensors below 256 KiB where oneDNN is on, nor the workspace of kernels that bypasses
   its allocators. Sizes are those that glibc hands out (malloc_usable_size). */

#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* block);

static atomic_llong current, peak;

static void* counted(void* block) {
  long long now = block ? (long long)malloc_usable_size(block) : 0;
  now += atomic_fetch_add_explicit(&current, now, memory_order_relaxed);
  long long highest = atomic_load_explicit(&peak, memory_order_relaxed);
  while (now > highest && !atomic_compare_exchange_weak_explicit(&peak, &highest, now, memory_order_relaxed,
                                                                 memory_order_relaxed)) {
  }
  return block;
}

static void discount(void* block) {
  if (block) atomic_fetch_sub_explicit(&current, (long long)malloc_usable_size(block), memory_order_relaxed);
}

void* malloc(size_t size) {
  return counted(__libc_malloc(size));
}
void* calloc(size_t count, size_t size) {
  return counted(__libc_calloc(count, size));
}
void* memalign(size_t alignment, size_t size) {
  return counted(__libc_memalign(alignment, size));
}
void* aligned_alloc(size_t alignment, size_t size) {
  return counted(__libc_memalign(alignment, size));
}

int posix_memalign(void** block, size_t alignment, size_t size) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* made = __libc_memalign(alignment, size);
  if (!made) return ENOMEM;
  *block = counted(made);
  return 0;
}

void* realloc(void* block, size_t size) {
  size_t before = block ? malloc_usable_size(block) : 0;
  void* made = __libc_realloc(block, size);
  if (made || size == 0) {
    atomic_fetch_sub_explicit(&current, (long long)before, memory_order_relaxed);
    counted(made);
  }
  return made;
}

void free(void* block) {
  discount(block);
  __libc_free(block);
}

/* The peak becomes what is there now; returns that. */
long long heap_peak_reset(void) {
  long long now = atomic_load(&current);
  atomic_store(&peak, now);
  return now;
}

long long heap_peak(void) {
  return atomic_load(&peak);
}
