// SPDX-License-Identifier: Apache-2.0
/* Lets one allocation of a tensor by a kernel of libstash_tf.so fail, preloaded by test_no_memory.py: a limit
   on a process would fail TensorFlow's own first, some of which end the process. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

void* __libc_memalign(size_t alignment, size_t size);

static atomic_llong seen;
static atomic_llong chosen = -1;
static atomic_int counting;

static int is_ours(void) {
  void* frames[64];
  int count = backtrace(frames, (int)(sizeof(frames) / sizeof(frames[0])));
  for (int i = 0; i < count; ++i) {
    Dl_info found;
    if (dladdr(frames[i], &found) != 0 && found.dli_fname && strstr(found.dli_fname, "/libstash_tf.so"))
      return 1;
  }
  return 0;
}

static int fails(void) {
  return atomic_load(&counting) && is_ours() && atomic_fetch_add(&seen, 1) == atomic_load(&chosen);
}

/* From now on kernels' allocations are counted, and the one of this number fails; -1: none. */
void fail_tensor(long long which) {
  void* frame;
  backtrace(&frame, 1); /* allocates when it is called first */
  atomic_store(&seen, 0);
  atomic_store(&chosen, which);
  atomic_store(&counting, 1);
}

/* Stops that, and says how many there were. */
long long tensors_seen(void) {
  atomic_store(&counting, 0);
  return atomic_load(&seen);
}

/* What TensorFlow allocates tensors with. */
int posix_memalign(void** block, size_t alignment, size_t size) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* made = fails() ? NULL : __libc_memalign(alignment, size);
  if (!made) return ENOMEM;
  *block = made;
  return 0;
}

void* aligned_alloc(size_t alignment, size_t size) {
  if (!fails()) return __libc_memalign(alignment, size);
  errno = ENOMEM;
  return NULL;
}
