// SPDX-License-Identifier: Apache-2.0
#ifndef STASH_CONV_H
#define STASH_CONV_H
/* The part of the custom-layer examples that has nothing to do with Stash: a 3x3 convolution with padding 1
 * on channels-last maps, its two gradients, and numbers to run them on. Plain loops; C and C++. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Maps are (n, h, w, c), weights (out, 3, 3, in). */
typedef struct conv_sizes {
  int64_t n, h, w, in, out;
} conv_sizes;

static inline const float* conv_pixel(const conv_sizes* s, const float* x, int64_t n, int64_t y, int64_t x0) {
  return y < 0 || y >= s->h || x0 < 0 || x0 >= s->w ? NULL : x + ((n * s->h + y) * s->w + x0) * s->in;
}

static inline void conv_forward(const conv_sizes* s, const float* x, const float* weights, float* y) {
  for (int64_t p = 0; p < s->n * s->h * s->w; ++p) {
    const int64_t n = p / (s->h * s->w), row = p / s->w % s->h, column = p % s->w;
    for (int64_t o = 0; o < s->out; ++o) {
      float sum = 0;
      for (int64_t k = 0; k < 9; ++k) {
        const float* from = conv_pixel(s, x, n, row + k / 3 - 1, column + k % 3 - 1);
        if (from == NULL) continue;
        for (int64_t i = 0; i < s->in; ++i)
          sum += from[i] * weights[(o * 9 + k) * s->in + i];
      }
      y[p * s->out + o] = sum;
    }
  }
}

static inline void conv_backward_weights(const conv_sizes* s, const float* x, const float* dy, float* dw) {
  memset(dw, 0, (size_t)(s->out * 9 * s->in) * sizeof(float));
  for (int64_t p = 0; p < s->n * s->h * s->w; ++p) {
    const int64_t n = p / (s->h * s->w), row = p / s->w % s->h, column = p % s->w;
    for (int64_t k = 0; k < 9; ++k) {
      const float* from = conv_pixel(s, x, n, row + k / 3 - 1, column + k % 3 - 1);
      if (from == NULL) continue;
      for (int64_t o = 0; o < s->out; ++o) {
        for (int64_t i = 0; i < s->in; ++i)
          dw[(o * 9 + k) * s->in + i] += dy[p * s->out + o] * from[i];
      }
    }
  }
}

static inline void conv_backward_data(const conv_sizes* s, const float* weights, const float* dy, float* dx) {
  memset(dx, 0, (size_t)(s->n * s->h * s->w * s->in) * sizeof(float));
  for (int64_t p = 0; p < s->n * s->h * s->w; ++p) {
    const int64_t n = p / (s->h * s->w), row = p / s->w % s->h, column = p % s->w;
    for (int64_t k = 0; k < 9; ++k) {
      const float* target = conv_pixel(s, dx, n, row + k / 3 - 1, column + k % 3 - 1);
      if (target == NULL) continue;
      float* to = dx + (target - dx);
      for (int64_t o = 0; o < s->out; ++o) {
        for (int64_t i = 0; i < s->in; ++i)
          to[i] += dy[p * s->out + o] * weights[(o * 9 + k) * s->in + i];
      }
    }
  }
}

/* Numbers between -1 and 1, the same on every machine (xorshift, Marsaglia 2003). */
static inline void fill_random(float* values, int64_t count, uint32_t seed) {
  uint32_t state = seed * 2654435761U + 1;
  for (int64_t i = 0; i < count; ++i) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    values[i] = (float)(int32_t)state / 2147483648.0F;
  }
}

#endif
