// SPDX-License-Identifier: Apache-2.0
/* The layer of custom_layer.cpp - convolution, ReLU, 2x2 max pooling with encoded stashes - through the C
 * API: handles with the caller's own allocator, and non-owning calls on their bytes. */

#include <stdio.h>
#include <stdlib.h>

#include "conv.h"
#include "stash/c_api.h"

/* ---- memory of the caller: counts what is in use ---------------------------------------------------------
 */

static size_t bytes_in_use = 0;

static void* take(void* user, size_t bytes, size_t alignment, void* stream) {
  (void)user;
  (void)stream;
  void* data = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data != NULL) bytes_in_use += bytes;
  return data;
}

static void give_back(void* user, void* data, size_t bytes, size_t alignment, void* stream) {
  (void)user;
  (void)alignment;
  (void)stream;
  bytes_in_use -= bytes;
  free(data);
}

static void heard(void* user, const stash_event* event) {
  (void)user;
  if (event->kind == STASH_EVENT_OVERFLOW) {
    printf("  %s outgrew its %llu bytes: %llu bytes are taken\n", event->tensor,
           (unsigned long long)event->available_bytes, (unsigned long long)event->required_bytes);
  }
}

/* ---- small helpers ----------------------------------------------------------------------------------------
 */

/* Ends the program with the library's message if a call failed. */
static void must(int32_t status) {
  if (status == STASH_OK) return;
  fprintf(stderr, "%s: %s\n", stash_errc_name(status), stash_last_error_message());
  exit(EXIT_FAILURE);
}

static float* new_map(int64_t n, int64_t h, int64_t w, int64_t c) {
  float* data = malloc((size_t)(n * h * w * c) * sizeof(float));
  if (data == NULL) {
    fprintf(stderr, "no memory for a map\n");
    exit(EXIT_FAILURE);
  }
  return data;
}

static stash_tensor_view map_view(const float* data, int64_t n, int64_t h, int64_t w, int64_t c) {
  stash_tensor_view view = STASH_INIT(stash_tensor_view);
  view.data = (void*)data;
  view.type = STASH_DTYPE_F32;
  view.rank = 4;
  view.dims[0] = n;
  view.dims[1] = h;
  view.dims[2] = w;
  view.dims[3] = c;
  return view;
}

/* ---- the layer --------------------------------------------------------------------------------------------
 */

typedef struct conv_relu_pool {
  conv_sizes sizes;
  const float* weights;
  stash_encoding x_encoding, code_encoding;
  stash_memory_callbacks memory;
  size_t capacity; /* for x, from the step before; 0: not known yet */
  stash_handle *x, *code;
} conv_relu_pool;

static void layer_init(conv_relu_pool* layer, const conv_sizes* sizes, const float* weights) {
  memset(layer, 0, sizeof(*layer));
  layer->sizes = *sizes;
  layer->weights = weights;
  layer->x_encoding.struct_size = sizeof(stash_encoding);
  must(stash_parse_encoding("bitmap", &layer->x_encoding));
  layer->code_encoding.struct_size = sizeof(stash_encoding);
  must(stash_parse_encoding("relu_pool", &layer->code_encoding));
  layer->code_encoding.window_taps = 4;
  layer->memory.struct_size = sizeof(stash_memory_callbacks);
  layer->memory.allocate = take;
  layer->memory.deallocate = give_back;
}

static void layer_forward(conv_relu_pool* layer, const float* x, float* y) {
  const conv_sizes* s = &layer->sizes;
  float* z = new_map(s->n, s->h, s->w, s->out);
  conv_forward(s, x, layer->weights, z);

  stash_handle_options options = STASH_INIT(stash_handle_options);
  options.memory = &layer->memory;
  options.capacity = layer->capacity;
  options.notify = heard;
  options.name = "x";
  const stash_tensor_view x_view = map_view(x, s->n, s->h, s->w, s->in);
  must(stash_handle_create(&layer->x_encoding, &x_view, &options, NULL, &layer->x));

  stash_size_query* query = NULL;
  stash_stored_size size = STASH_INIT(stash_stored_size);
  must(stash_handle_size(layer->x, NULL, &query));
  must(stash_size_query_wait(query, &size));
  stash_size_query_destroy(query);
  layer->capacity = (size_t)(size.bytes * 21 / 20);

  const stash_tensor_view z_view = map_view(z, s->n, s->h, s->w, s->out);
  const stash_tensor_view y_view = map_view(y, s->n, s->h / 2, s->w / 2, s->out);
  const stash_pool_window window = STASH_INIT(stash_pool_window); /* 2x2, stride 2 */
  stash_encoded_view code = STASH_INIT(stash_encoded_view);
  options.capacity = 0;
  options.name = "code";
  must(stash_handle_reserve(&layer->code_encoding, STASH_DTYPE_F32, y_view.rank, y_view.dims, &options, NULL,
                            &layer->code));
  must(stash_handle_view(layer->code, &code));
  must(stash_relu_max_pool_forward(&z_view, &y_view, &window, &code, NULL, STASH_RULE_PYTORCH, NULL));
  free(z);
}

static void layer_backward(conv_relu_pool* layer, const float* dy, float* dx, float* dw) {
  const conv_sizes* s = &layer->sizes;
  float* dz = new_map(s->n, s->h, s->w, s->out);
  const stash_tensor_view dy_view = map_view(dy, s->n, s->h / 2, s->w / 2, s->out);
  const stash_tensor_view dz_view = map_view(dz, s->n, s->h, s->w, s->out);
  const stash_pool_window window = STASH_INIT(stash_pool_window);
  stash_encoded_tensor code = STASH_INIT(stash_encoded_tensor);
  must(stash_handle_tensor(layer->code, &code));
  must(stash_relu_max_pool_backward(&dy_view, &code, &dz_view, &window, NULL));
  must(stash_handle_check(layer->code, NULL));
  stash_handle_destroy(layer->code);
  layer->code = NULL;

  /* x exists for the weight gradient only. */
  float* x = new_map(s->n, s->h, s->w, s->in);
  const stash_tensor_view x_view = map_view(x, s->n, s->h, s->w, s->in);
  must(stash_handle_restore(layer->x, &x_view, NULL));
  stash_handle_destroy(layer->x);
  layer->x = NULL;
  conv_backward_weights(s, x, dz, dw);
  free(x);
  conv_backward_data(s, layer->weights, dz, dx);
  free(dz);
}

/* The same with everything kept dense. */
static void dense_gradients(const conv_sizes* s, const float* weights, const float* x, const float* dy,
                            float* dx, float* dw) {
  float* z = new_map(s->n, s->h, s->w, s->out);
  float* dz = new_map(s->n, s->h, s->w, s->out);
  conv_forward(s, x, weights, z);
  const stash_tensor_view z_view = map_view(z, s->n, s->h, s->w, s->out);
  const stash_tensor_view dz_view = map_view(dz, s->n, s->h, s->w, s->out);
  const stash_tensor_view dy_view = map_view(dy, s->n, s->h / 2, s->w / 2, s->out);
  const stash_pool_window window = STASH_INIT(stash_pool_window);
  must(stash_relu_max_pool_backward_dense(&dy_view, &z_view, &dz_view, &window, STASH_RULE_PYTORCH, NULL));
  conv_backward_weights(s, x, dz, dw);
  conv_backward_data(s, weights, dz, dx);
  free(z);
  free(dz);
}

int main(void) {
  const conv_sizes s = {4, 16, 16, 16, 32};
  const int64_t inputs = s.n * s.h * s.w * s.in, wide = s.n * s.h * s.w * s.out, pooled = wide / 4;
  const int64_t weight_count = s.out * 9 * s.in;
  float* weights = new_map(s.out, 3, 3, s.in);
  fill_random(weights, weight_count, 1);
  float *x = new_map(1, 1, 1, inputs), *dx = new_map(1, 1, 1, inputs), *dx_dense = new_map(1, 1, 1, inputs);
  float *y = new_map(1, 1, 1, pooled), *dy = new_map(1, 1, 1, pooled);
  float *dw = new_map(1, 1, 1, weight_count), *dw_dense = new_map(1, 1, 1, weight_count);

  conv_relu_pool layer;
  layer_init(&layer, &s, weights);
  int status = EXIT_SUCCESS;
  for (uint32_t step = 0; step < 4 && status == EXIT_SUCCESS; ++step) {
    fill_random(x, inputs, 100 + step);
    fill_random(dy, pooled, 200 + step);
    for (int64_t i = 0; i < inputs; ++i) {
      if (x[i] < 0) x[i] = step == 2 ? -x[i] : 0; /* the third step is denser than the ones before */
    }
    layer_forward(&layer, x, y);
    const size_t dense = (size_t)(inputs + wide + pooled) * sizeof(float);
    printf("step %u: %zu bytes kept instead of %zu: %.1f times less\n", (unsigned)step, bytes_in_use, dense,
           (double)dense / (double)bytes_in_use);
    layer_backward(&layer, dy, dx, dw);
    dense_gradients(&s, weights, x, dy, dx_dense, dw_dense);
    if (memcmp(dx, dx_dense, (size_t)inputs * sizeof(float)) != 0 ||
        memcmp(dw, dw_dense, (size_t)weight_count * sizeof(float)) != 0) {
      printf("the gradients differ from those of the dense layer\n");
      status = EXIT_FAILURE;
    }
    if (bytes_in_use != 0) {
      printf("the layer still holds %zu bytes after its backward pass\n", bytes_in_use);
      status = EXIT_FAILURE;
    }
  }
  if (status == EXIT_SUCCESS) printf("all gradients are those of the dense layer, bit for bit\n");
  free(weights);
  free(x);
  free(dx);
  free(dx_dense);
  free(y);
  free(dy);
  free(dw);
  free(dw_dense);
  return status;
}
