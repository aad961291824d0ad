// SPDX-License-Identifier: Apache-2.0
// ReLU, leaky ReLU, clipping, pooling, dropout.

#include "c_api/c_types.hpp"
#include "c_api/guard.hpp"
#include "stash/c_api.h"
#include "stash/dropout.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"

using namespace stash::c_api;

namespace {

constexpr renamed sign_arguments[] = {{"encoding", "y.encoding"}};
constexpr renamed stash_arguments[] = {{"encoding", "stash.encoding"}};
constexpr renamed shape_arguments[] = {{"y", "y_dims"}, {"x", "x_dims"}};

stash::dropout_key to_key(std::string_view function, const stash_dropout_key* key) {
  const stash_dropout_key c = read(function, "key", key);
  return {c.seed, c.step, c.layer};
}

}  // namespace

int32_t stash_relu_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                           const stash_encoded_view* mask, int32_t rule,
                           const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::relu_forward(to_view(function, "x", x), to_view(function, "y", y),
                        encoded_argument::optional(function, "mask", mask).output(), to_rule(function, rule),
                        to_context(function, context));
  });
}

int32_t stash_relu_backward(const stash_tensor_view* dy, const stash_encoded_tensor* stash,
                            const stash_tensor_view* dx, int32_t rule,
                            const stash_execution_context* context) {
  return guard(__func__, {stash_arguments}, [&](std::string_view function) {
    stash::relu_backward(to_view(function, "dy", dy), encoded_tensor_argument(function, "stash", stash).get(),
                         to_view(function, "dx", dx), to_rule(function, rule), to_context(function, context));
  });
}

int32_t stash_relu_backward_dense(const stash_tensor_view* dy, const stash_tensor_view* y,
                                  const stash_tensor_view* dx, int32_t rule,
                                  const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::relu_backward(to_view(function, "dy", dy), to_view(function, "y", y), to_view(function, "dx", dx),
                         to_rule(function, rule), to_context(function, context));
  });
}

int32_t stash_leaky_relu_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                                 const stash_encoded_view* mask, float slope,
                                 const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::leaky_relu_forward(to_view(function, "x", x), to_view(function, "y", y),
                              encoded_argument::optional(function, "mask", mask).output(), slope,
                              to_context(function, context));
  });
}

int32_t stash_leaky_relu_backward(const stash_tensor_view* dy, const stash_encoded_tensor* stash,
                                  const stash_tensor_view* dx, float slope,
                                  const stash_execution_context* context) {
  return guard(__func__, {stash_arguments}, [&](std::string_view function) {
    stash::leaky_relu_backward(to_view(function, "dy", dy),
                               encoded_tensor_argument(function, "stash", stash).get(),
                               to_view(function, "dx", dx), slope, to_context(function, context));
  });
}

int32_t stash_leaky_relu_backward_dense(const stash_tensor_view* dy, const stash_tensor_view* x,
                                        const stash_tensor_view* dx, float slope,
                                        const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::leaky_relu_backward(to_view(function, "dy", dy), to_view(function, "x", x),
                               to_view(function, "dx", dx), slope, to_context(function, context));
  });
}

int32_t stash_clip_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                           const stash_encoded_view* mask, float lower, float upper, int32_t rule,
                           const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::clip_forward(to_view(function, "x", x), to_view(function, "y", y),
                        encoded_argument::optional(function, "mask", mask).output(), lower, upper,
                        to_rule(function, rule), to_context(function, context));
  });
}

int32_t stash_clip_backward(const stash_tensor_view* dy, const stash_encoded_tensor* stash,
                            const stash_tensor_view* dx, float lower, float upper, int32_t rule,
                            const stash_execution_context* context) {
  return guard(__func__, {stash_arguments}, [&](std::string_view function) {
    stash::clip_backward(to_view(function, "dy", dy), encoded_tensor_argument(function, "stash", stash).get(),
                         to_view(function, "dx", dx), lower, upper, to_rule(function, rule),
                         to_context(function, context));
  });
}

int32_t stash_clip_backward_dense(const stash_tensor_view* dy, const stash_tensor_view* x,
                                  const stash_tensor_view* dx, float lower, float upper, int32_t rule,
                                  const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::clip_backward(to_view(function, "dy", dy), to_view(function, "x", x), to_view(function, "dx", dx),
                         lower, upper, to_rule(function, rule), to_context(function, context));
  });
}

int32_t stash_max_pool_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                               const stash_pool_window* window, const stash_encoded_view* index, int32_t rule,
                               const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::max_pool_forward(to_view(function, "x", x), to_view(function, "y", y), to_window(function, window),
                            encoded_argument::optional(function, "index", index).output(),
                            to_rule(function, rule), to_context(function, context));
  });
}

int32_t stash_max_pool_backward(const stash_tensor_view* dy, const stash_encoded_tensor* index,
                                const stash_tensor_view* dx, const stash_pool_window* window,
                                const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::max_pool_backward(
        to_view(function, "dy", dy), encoded_tensor_argument(function, "index", index).get(),
        to_view(function, "dx", dx), to_window(function, window), to_context(function, context));
  });
}

int32_t stash_max_pool_backward_dense(const stash_tensor_view* dy, const stash_tensor_view* x,
                                      const stash_tensor_view* dx, const stash_pool_window* window,
                                      int32_t rule, const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::max_pool_backward(to_view(function, "dy", dy), to_view(function, "x", x),
                             to_view(function, "dx", dx), to_window(function, window),
                             to_rule(function, rule), to_context(function, context));
  });
}

int32_t stash_relu_max_pool_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                                    const stash_pool_window* window, const stash_encoded_view* code,
                                    const stash_encoded_view* index, int32_t rule,
                                    const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::relu_max_pool_forward(to_view(function, "x", x), to_view(function, "y", y),
                                 to_window(function, window),
                                 encoded_argument::optional(function, "code", code).output(),
                                 encoded_argument::optional(function, "index", index).output(),
                                 to_rule(function, rule), to_context(function, context));
  });
}

int32_t stash_relu_max_pool_backward(const stash_tensor_view* dy, const stash_encoded_tensor* code,
                                     const stash_tensor_view* dx, const stash_pool_window* window,
                                     const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::relu_max_pool_backward(
        to_view(function, "dy", dy), encoded_tensor_argument(function, "code", code).get(),
        to_view(function, "dx", dx), to_window(function, window), to_context(function, context));
  });
}

int32_t stash_relu_max_pool_backward_sign(const stash_tensor_view* dy, const stash_encoded_tensor* index,
                                          const stash_encoded_tensor* y, const stash_tensor_view* dx,
                                          const stash_pool_window* window, int32_t rule,
                                          const stash_execution_context* context) {
  return guard(__func__, {sign_arguments}, [&](std::string_view function) {
    stash::relu_max_pool_backward(
        to_view(function, "dy", dy), encoded_tensor_argument(function, "index", index).get(),
        encoded_tensor_argument(function, "y", y).get(), to_view(function, "dx", dx),
        to_window(function, window), to_rule(function, rule), to_context(function, context));
  });
}

int32_t stash_relu_max_pool_backward_output(const stash_tensor_view* dy, const stash_encoded_tensor* index,
                                            const stash_tensor_view* y, const stash_tensor_view* dx,
                                            const stash_pool_window* window, int32_t rule,
                                            const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    const stash::const_tensor_view pooled = to_view(function, "y", y);
    stash::relu_max_pool_backward(to_view(function, "dy", dy),
                                  encoded_tensor_argument(function, "index", index).get(), pooled,
                                  to_view(function, "dx", dx), to_window(function, window),
                                  to_rule(function, rule), to_context(function, context));
  });
}

int32_t stash_relu_max_pool_backward_dense(const stash_tensor_view* dy, const stash_tensor_view* x,
                                           const stash_tensor_view* dx, const stash_pool_window* window,
                                           int32_t rule, const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::relu_max_pool_backward(to_view(function, "dy", dy), to_view(function, "x", x),
                                  to_view(function, "dx", dx), to_window(function, window),
                                  to_rule(function, rule), to_context(function, context));
  });
}

int32_t stash_encode_window_index(const int64_t* flat, int32_t rank, const int64_t* y_dims,
                                  const int64_t* x_dims, const stash_pool_window* window,
                                  const stash_encoded_view* index, const stash_execution_context* context) {
  return guard(__func__, {shape_arguments}, [&](std::string_view function) {
    const stash::shape y = to_shape(function, "y_dims", rank, &checked(function, "y_dims", y_dims));
    const stash::shape x = to_shape(function, "x_dims", rank, &checked(function, "x_dims", x_dims));
    stash::encode_window_index(flat, y, x, to_window(function, window),
                               encoded_argument(function, "index", index).output(),
                               to_context(function, context));
  });
}

int32_t stash_decode_window_index(const stash_encoded_tensor* index, const int64_t* x_dims,
                                  const stash_pool_window* window, int64_t* flat,
                                  const stash_execution_context* context) {
  return guard(__func__, {shape_arguments}, [&](std::string_view function) {
    const encoded_tensor_argument pooled(function, "index", index);
    const stash::encoded_tensor tensor = pooled.get();
    const stash::shape x =
        to_shape(function, "x_dims", tensor.dims.rank(), &checked(function, "x_dims", x_dims));
    stash::decode_window_index(tensor, x, to_window(function, window), flat, to_context(function, context));
  });
}

int32_t stash_dropout_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                              const stash_encoded_view* mask, float probability, const stash_dropout_key* key,
                              const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::dropout_forward(to_view(function, "x", x), to_view(function, "y", y),
                           encoded_argument::optional(function, "mask", mask).output(), probability,
                           to_key(function, key), to_context(function, context));
  });
}

int32_t stash_dropout_backward(const stash_tensor_view* dy, const stash_encoded_tensor* mask,
                               const stash_tensor_view* dx, float probability,
                               const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::dropout_backward(to_view(function, "dy", dy),
                            encoded_tensor_argument(function, "mask", mask).get(),
                            to_view(function, "dx", dx), probability, to_context(function, context));
  });
}

int32_t stash_dropout_backward_key(const stash_tensor_view* dy, const stash_tensor_view* dx,
                                   float probability, const stash_dropout_key* key,
                                   const stash_execution_context* context) {
  return guard(__func__, [&](std::string_view function) {
    stash::dropout_backward(to_view(function, "dy", dy), to_view(function, "dx", dx), probability,
                            to_key(function, key), to_context(function, context));
  });
}
