// SPDX-License-Identifier: Apache-2.0
/* Lets one allocation of a tensor fail, preloaded by test_robust.py. PyTorch allocates tensors of the CPU by
   posix_memalign. Only what Stash asks for counts: some kernels of libraries that PyTorch uses end the
   process. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_llong seen;
static atomic_llong chosen = -1;
static atomic_int counting, inside;

/* From now on tensors are counted, and the one of this number fails; -1: none. */
void fail_block(long long which) {
  atomic_store(&seen, 0);
  atomic_store(&chosen, which);
  atomic_store(&counting, 1);
}

/* Stops that, and says how many there were. */
long long blocks_seen(void) {
  atomic_store(&counting, 0);
  return atomic_load(&seen);
}

/* 1 where code of Stash begins, 0 where it ends. */
void is_ours(int value) {
  atomic_store(&inside, value);
}

int posix_memalign(void** block, size_t alignment, size_t size) {
  static int (*real)(void**, size_t, size_t);
  if (!real) real = (int (*)(void**, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
  if (atomic_load(&counting) && atomic_load(&inside) && atomic_fetch_add(&seen, 1) == atomic_load(&chosen))
    return ENOMEM;
  return real(block, alignment, size);
}
