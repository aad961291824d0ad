// SPDX-License-Identifier: Apache-2.0
/* What a user's project in C does. */

#include <stdio.h>
#include <string.h>

#include "stash/c_api.h"

static stash_swap_request request = STASH_INIT(stash_swap_request);

int main(void) {
  static float x[5000], back[5000];
  for (int i = 0; i < 5000; i += 3)
    x[i] = (float)i;
  stash_tensor_view from = STASH_INIT(stash_tensor_view);
  from.data = x;
  from.rank = 1;
  from.dims[0] = 5000;
  stash_tensor_view to = from;
  to.data = back;
  stash_encoding bitmap = STASH_INIT(stash_encoding);
  bitmap.kind = STASH_KIND_RAW;
  bitmap = (stash_encoding)STASH_INIT(stash_encoding);
  bitmap.kind = STASH_KIND_BITMAP;
  stash_handle* kept = NULL;
  size_t bytes = 0, dense = 0;
  if (stash_handle_create(&bitmap, &from, NULL, NULL, &kept) != STASH_OK ||
      stash_handle_restore(kept, &to, NULL) != STASH_OK ||
      stash_handle_bytes(kept, &bytes, &dense) != STASH_OK) {
    fprintf(stderr, "%s\n", stash_last_error_message());
    return 1;
  }
  stash_handle_destroy(kept);
  if (memcmp(x, back, sizeof(x)) != 0) return 2;
  if (stash_plan("{", NULL, NULL) == STASH_OK) return 3;
  if (request.struct_size != sizeof(request) || bitmap.struct_size != sizeof(bitmap)) return 4;
  printf("%zu bytes kept instead of %zu by stash %s\n", bytes, dense, stash_version());
  return 0;
}
