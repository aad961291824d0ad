// SPDX-License-Identifier: Apache-2.0
#ifndef STASH_C_API_H
#define STASH_C_API_H
/**
 * \file
 * The C API: what the C++ headers offer, for C11 and for languages that call C. Only C++ has memory resources
 * as objects (here: stash_memory_callbacks, and the library's own), names of event kinds,
 * batch_workspace_bytes (the most that stash_workspace_bytes says of an item), verification_enabled, and
 * moving from one handle to another.
 *
 * What a function computes, which shapes, types, overlaps and threads it allows is written at its C++
 * namesake (stash_relu_forward: relu_forward in relu.hpp). This page says what is different in C.
 *
 * Structures. Each begins with its size in bytes; the library reads as much as the caller's version had, and
 * members that it does not have count as zero. So new members can be added at the end: a program that was
 * compiled against an older header runs with a newer library, and one compiled against a newer header runs
 * with an older library as long as members unknown to that are zero (else STASH_INVALID_ARGUMENT).
 * Initialise with STASH_INIT, which sets the size and zeroes the rest:
 *
 *     stash_encoding how = STASH_INIT(stash_encoding);
 *
 * In C it is an initialiser, which serves static variables, too; for an assignment name the type again:
 *
 *     how = (stash_encoding)STASH_INIT(stash_encoding);
 *
 * In arrays of structures all must have the same size. A zero means the default that is given at the member;
 * reserved members of arguments must be zero (else STASH_INVALID_ARGUMENT).
 * stash_encode_report has no size: it lies where encoders run, and its layout is fixed for ever.
 *
 * Errors. Functions return STASH_OK or one of the numbers below, which never change their meaning. The text
 * that goes with the last failure of the calling thread is stash_last_error_message(); it begins with the
 * function that was called and its argument, or "memory" if there was not enough. A failing call has changed
 * nothing, if its C++ namesake does not say otherwise. No exception leaves the library.
 *
 * Pointers must not be null where nothing is said. Optional structures say "may be null". Callbacks must not
 * throw, and must not jump out of the call.
 */

/* NOLINTBEGIN(modernize-use-using, modernize-deprecated-headers): C has no other. */
#include <stddef.h>
#include <stdint.h>

#include "stash/visibility.h"

#ifdef __cplusplus
/* Says so itself, for those who include headers for C within extern "C". */
extern "C++" {
/** What STASH_INIT gives in C++. */
template <class Struct>
inline Struct stash_initial() {
  Struct s{};
  s.struct_size = sizeof(Struct);
  return s;
}
}
/** A structure of this type with its size set and all else zero. */
#define STASH_INIT(type) stash_initial<type>()

extern "C" {
#else
/** Initialises a structure of this type with its size set and all else zero. */
#define STASH_INIT(type) \
  { .struct_size = sizeof(type) }
#endif

/* ---- errors and versions ------------------------------------------------------------------------------ */

/** Values of errc (error.hpp). */
typedef enum stash_errc {
  STASH_OK = 0,
  STASH_INVALID_ARGUMENT = 1,
  STASH_UNSUPPORTED = 2,
  STASH_OUT_OF_MEMORY = 3,
  STASH_CAPACITY_EXCEEDED = 4,
  STASH_CORRUPT_DATA = 5,
  STASH_IO_FAILURE = 6,
  STASH_BAD_FORMAT = 7,
  STASH_INFEASIBLE_BUDGET = 8,
  STASH_VERIFICATION_FAILED = 9,
  STASH_INTERRUPTED = 10,
  STASH_INTERNAL = 11,
  STASH_DEVICE_FAILURE = 12
} stash_errc;

/** "0.1.0": the version of the library that runs, which need not be that of this header. */
STASH_API const char* stash_version(void);

/** Stable lower-case name of a code, e.g. "invalid_argument"; "unknown" for another number. */
STASH_API const char* stash_errc_name(int32_t code);

/**
 * Text of the last failure in this thread, "" if there was none; "function: argument: expected ..., got ...".
 * Cut to 4,095 bytes. Valid until the next failure in this thread; a call that succeeds leaves it.
 */
STASH_API const char* stash_last_error_message(void);

/* ---- tensors, threads, encodings ---------------------------------------------------------------------- */

/** Values of memory_space. */
enum { STASH_SPACE_HOST = 0, STASH_SPACE_DEVICE = 1, STASH_SPACE_PINNED_HOST = 2 };
/** Values of dtype. */
enum {
  STASH_DTYPE_F32 = 0,
  STASH_DTYPE_F16 = 1,
  STASH_DTYPE_BF16 = 2,
  STASH_DTYPE_U8 = 3,
  STASH_DTYPE_S32 = 4
};
/** Values of framework_rule. */
enum { STASH_RULE_TENSORFLOW = 0, STASH_RULE_PYTORCH = 1 };
/** Values of encoding_kind. */
enum {
  STASH_KIND_RAW = 0,
  STASH_KIND_SHAPE_ONLY = 1,
  STASH_KIND_SIGN_MASK = 2,
  STASH_KIND_WINDOW_INDEX = 3,
  STASH_KIND_RELU_POOL = 4,
  STASH_KIND_BITMAP = 5,
  STASH_KIND_CAST = 6,
  STASH_KIND_RANGE_MASK = 7,
  STASH_KIND_CSR = 8
};
/** Values of value_format. */
enum {
  STASH_VALUES_SOURCE = 0,
  STASH_VALUES_FP16 = 1,
  STASH_VALUES_FP8_E4M3 = 2,
  STASH_VALUES_BF16 = 3,
  STASH_VALUES_FP10 = 4,
  STASH_VALUES_FP8_E5M2 = 5,
  STASH_VALUES_MXFP8_E4M3 = 6,
  STASH_VALUES_MXFP8_E5M2 = 7,
  STASH_VALUES_MXFP6_E2M3 = 8,
  STASH_VALUES_MXFP6_E3M2 = 9,
  STASH_VALUES_MXFP4_E2M1 = 10
};
/** Values of underflow_rule. */
enum { STASH_UNDERFLOW_TO_ZERO = 0, STASH_UNDERFLOW_KEEP_NONZERO = 1 };
/** Values of pool_layout. */
enum { STASH_LAYOUT_CHANNELS_LAST = 0, STASH_LAYOUT_CHANNELS_FIRST = 1 };
/** Bits of stash_encode_report.status (status_bits). */
enum { STASH_STATUS_CAPACITY = 1, STASH_STATUS_CORRUPT = 2, STASH_STATUS_VERIFICATION = 4 };

/** Most dimensions of a tensor. */
#define STASH_MAX_RANK 8

/** A dense tensor (tensor_view.hpp). Functions that take it as const never write its data. */
typedef struct stash_tensor_view {
  size_t struct_size;
  void* data;
  int32_t type;                 /**< STASH_DTYPE_F32 ... */
  int32_t space;                /**< STASH_SPACE_HOST ... */
  int32_t rank;                 /**< 0..8 */
  int32_t reserved;             /**< 0 */
  int64_t dims[STASH_MAX_RANK]; /**< in memory order, slowest first */
  int64_t pixel_pitch;          /**< elements; 0: dense */
} stash_tensor_view;

/** Where and how a call runs (execution.hpp). May be null everywhere: the calling thread, host memory. */
typedef struct stash_execution_context {
  size_t struct_size;
  int32_t space;     /**< STASH_SPACE_HOST or STASH_SPACE_DEVICE */
  int32_t canonical; /**< 1: on a device, bitmap and csr place their tiles in order; takes workspace. On the
                          host they always do */
  /** Runs body(state, begin, end) over ranges that cover [0, count), possibly at the same time; null: alone.
   *  Ranges never wait for each other; one may do the work of others, too; takes up to 128 KiB of stack. */
  void (*parallel_for)(void* user, int64_t count, int64_t grain,
                       void (*body)(void* state, int64_t begin, int64_t end), void* state);
  void* user;   /**< of parallel_for, without which it is not looked at */
  void* stream; /**< of a device; not looked at on the host */
} stash_execution_context;

/** An encoding (encoding.hpp). Members of other kinds do not count. */
typedef struct stash_encoding {
  size_t struct_size;
  int32_t kind;        /**< STASH_KIND_RAW ... */
  int32_t values;      /**< bitmap, csr, cast: STASH_VALUES_SOURCE ... */
  int32_t underflow;   /**< bitmap, csr, cast with narrower values: STASH_UNDERFLOW_TO_ZERO ... */
  int32_t rule;        /**< sign_mask, range_mask: STASH_RULE_TENSORFLOW ... */
  int32_t window_taps; /**< window_index, relu_pool: 1..256 */
  float lower, upper;  /**< range_mask; both 0: 0 and 6 (ReLU6); rounded to a 16-bit map's type */
  int32_t reserved;    /**< 0 */
} stash_encoding;

/** What encoders and decoders say of the data (status.hpp). Zero it before the first call. */
typedef struct stash_encode_report {
  uint32_t status;
  uint32_t flags;
  uint64_t nonzeros;
  uint64_t slot_bytes;
  uint64_t overflow_bytes;
  uint64_t checksum;
} stash_encode_report;

/** Memory shared by sparse tensors for what does not fit their slots (encoding.hpp). A region without a
 * counter is missing. */
typedef struct stash_overflow_arena {
  size_t struct_size;
  void* data;
  uint64_t bytes;
  uint64_t* claimed;
  void* host_data; /**< 16-byte aligned; on a device pinned and mapped */
  uint64_t host_bytes;
  uint64_t* host_claimed;
} stash_overflow_arena;

/** Encoded bytes, to write or (where the parameter is const) to read. */
typedef struct stash_encoded_view {
  size_t struct_size;
  void* data; /**< 16-byte aligned */
  size_t bytes;
  const stash_overflow_arena* overflow; /**< may be null */
  stash_encode_report* report;
} stash_encoded_view;

/** Encoded bytes with all that a reader must know of them (encoded_tensor in encoding.hpp). */
typedef struct stash_encoded_tensor {
  size_t struct_size;
  const stash_encoding* encoding;
  int32_t type;                    /**< STASH_DTYPE_F32 ...: of the dense tensor */
  int32_t rank;                    /**< 0..8 */
  int64_t dims[STASH_MAX_RANK];    /**< of the dense tensor; for pooling codes of the pooled one */
  const stash_encoded_view* bytes; /**< never written, but for its report */
} stash_encoded_tensor;

/** Workspace of a call, 64-byte aligned. */
typedef struct stash_workspace_view {
  size_t struct_size;
  void* data;
  size_t bytes;
} stash_workspace_view;

/** What there is to know of a value format (value_format.hpp). */
typedef struct stash_value_format {
  size_t struct_size;
  const char* name; /**< "fp8"; valid as long as the library */
  int32_t values;   /**< STASH_VALUES_FP8_E4M3 ... */
  int32_t bits;     /**< of a value, scales not counted */
  int32_t mantissa_bits;
  int32_t bias;
  int32_t scaled; /**< 1: groups of 32 values share a scale */
  int32_t reserved;
  double largest; /**< the largest finite number; of a scaled format, before the scale */
} stash_value_format;

/** How many value formats there are, STASH_VALUES_SOURCE not counted. */
STASH_API size_t stash_value_format_count(void);
/** The one at this index; `format->struct_size` is set by the caller. */
STASH_API int32_t stash_value_format_at(size_t index, stash_value_format* format);

/** Fills `encoding` from a name such as "bitmap_fp8"; its struct_size must be set. Inverse of the next. */
STASH_API int32_t stash_parse_encoding(const char* name, stash_encoding* encoding);
/** Writes at most `capacity` bytes of the name, end included; STASH_CAPACITY_EXCEEDED if that is too few. */
STASH_API int32_t stash_encoding_name(const stash_encoding* encoding, char* name, size_t capacity);
/** 1 or 0 in *lossless. */
STASH_API int32_t stash_is_lossless(const stash_encoding* encoding, int32_t* lossless);

/** Largest encoded size for a type and count. */
STASH_API int32_t stash_encoded_bytes_bound(const stash_encoding* encoding, int32_t source, int64_t elements,
                                            size_t* bytes);
/** Size of a slot for a share of non-zeros, 0..1. */
STASH_API int32_t stash_encoded_bytes_at_density(const stash_encoding* encoding, int32_t source,
                                                 int64_t elements, double density, size_t* bytes);
/** Bytes that encoding exactly this tensor needs. Reads it once. On a device: stash_size_query_count(). */
STASH_API int32_t stash_encoded_bytes_exact(const stash_encoding* encoding, const stash_tensor_view* input,
                                            const stash_execution_context* context, size_t* bytes);
/** Workspace bytes for stash_encode() and stash_decode(). A batch needs the most that one of its items needs.
 */
STASH_API int32_t stash_workspace_bytes(const stash_encoding* encoding, int32_t source, int64_t elements,
                                        const stash_execution_context* context, size_t* bytes);

/** The best instruction set first; null past the last. Valid as long as the library. */
STASH_API const char* stash_cpu_target_name(size_t index);
/** Name of the one in use, as stash_cpu_target_name gives it. */
STASH_API int32_t stash_cpu_target(const char** name);
/** Uses this instruction set from the next call on. */
STASH_API int32_t stash_set_cpu_target(const char* name);

/* ---- encoding and decoding ---------------------------------------------------------------------------- */

/** `workspace` may be null. */
STASH_API int32_t stash_encode(const stash_encoding* encoding, const stash_tensor_view* input,
                               const stash_encoded_view* output, const stash_workspace_view* workspace,
                               const stash_execution_context* context);
/** Decodes into `output`. `workspace` may be null. */
STASH_API int32_t stash_decode(const stash_encoded_tensor* input, const stash_tensor_view* output,
                               const stash_workspace_view* workspace, const stash_execution_context* context);
/** Copies encoded bytes into their canonical form. */
STASH_API int32_t stash_canonicalise(const stash_encoded_tensor* input, const stash_encoded_view* output,
                                     const stash_execution_context* context);

/** One call of stash_encode() or stash_decode(): `dense` is read by the one and written by the other. */
typedef struct stash_batch_item {
  size_t struct_size;
  const stash_encoding* encoding;
  const stash_tensor_view* dense;
  const stash_encoded_view* encoded;
} stash_batch_item;

/** batch.hpp. Allocates the list of items; STASH_OUT_OF_MEMORY if it cannot. */
STASH_API int32_t stash_encode_batch(const stash_batch_item* items, size_t count,
                                     const stash_workspace_view* workspace,
                                     const stash_execution_context* context);
/** The same for decoding. */
STASH_API int32_t stash_decode_batch(const stash_batch_item* items, size_t count,
                                     const stash_workspace_view* workspace,
                                     const stash_execution_context* context);

/** Conventional CSR (csr.hpp). */
typedef struct stash_csr32_view {
  size_t struct_size;
  uint32_t* row_offsets;
  uint32_t* columns;
  void* values;
  int64_t capacity;
  int32_t type;
  int32_t reserved; /**< 0 */
} stash_csr32_view;

/** Writes conventional CSR; the count of non-zeros goes to *nonzeros. */
STASH_API int32_t stash_csr_export32(const stash_encoded_tensor* input, const stash_csr32_view* output,
                                     const stash_execution_context* context, int64_t* nonzeros);

/** What is known of a stored tensor (size_query.hpp); struct_size is set by the caller. */
typedef struct stash_stored_size {
  size_t struct_size;
  uint64_t bytes;
  uint64_t overflow_bytes;
  uint64_t nonzeros;
  double density;
  uint32_t status;
  uint32_t reserved;
} stash_stored_size;

/** A question that is answered after the work in the context's stream. */
typedef struct stash_size_query stash_size_query;

/** Asks for the size of `stored`, whose bytes an encoder was given. */
STASH_API int32_t stash_size_query_create(const stash_encoded_tensor* stored,
                                          const stash_execution_context* context, stash_size_query** query);
/** Counts what encoding `input` would store, without storing it or waiting. `report` is zeroed by the caller
 * and stays where it is until the answer is there. */
STASH_API int32_t stash_size_query_count(const stash_encoding* encoding, const stash_tensor_view* input,
                                         stash_encode_report* report, const stash_execution_context* context,
                                         stash_size_query** query);
/** 1 in *ready if stash_size_query_wait() would not wait. Never blocks. */
STASH_API int32_t stash_size_query_ready(const stash_size_query* query, int32_t* ready);
/** The answer, once it is there. */
STASH_API int32_t stash_size_query_wait(const stash_size_query* query, stash_stored_size* size);
/** Null is fine. */
STASH_API void stash_size_query_destroy(stash_size_query* query);

/* ---- layers ------------------------------------------------------------------------------------------- */

/** relu.hpp. `mask` may be null. */
STASH_API int32_t stash_relu_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                                     const stash_encoded_view* mask, int32_t rule,
                                     const stash_execution_context* context);
/** Gradient from any stash of y that keeps the sign. */
STASH_API int32_t stash_relu_backward(const stash_tensor_view* dy, const stash_encoded_tensor* stash,
                                      const stash_tensor_view* dx, int32_t rule,
                                      const stash_execution_context* context);
/** Gradient from the dense y. */
STASH_API int32_t stash_relu_backward_dense(const stash_tensor_view* dy, const stash_tensor_view* y,
                                            const stash_tensor_view* dx, int32_t rule,
                                            const stash_execution_context* context);
/** relu.hpp. `mask` may be null. */
STASH_API int32_t stash_leaky_relu_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                                           const stash_encoded_view* mask, float slope,
                                           const stash_execution_context* context);
/** Gradient from a stash that keeps the sign. */
STASH_API int32_t stash_leaky_relu_backward(const stash_tensor_view* dy, const stash_encoded_tensor* stash,
                                            const stash_tensor_view* dx, float slope,
                                            const stash_execution_context* context);
/** Gradient from the dense x, or for slope > 0 from the dense y. */
STASH_API int32_t stash_leaky_relu_backward_dense(const stash_tensor_view* dy, const stash_tensor_view* x,
                                                  const stash_tensor_view* dx, float slope,
                                                  const stash_execution_context* context);
/** relu.hpp; ReLU6 is lower 0, upper 6; bounds are rounded to a 16-bit type. `mask` may be null. */
STASH_API int32_t stash_clip_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                                     const stash_encoded_view* mask, float lower, float upper, int32_t rule,
                                     const stash_execution_context* context);
/** Gradient from a range_mask, or from a lossless stash of x or y. */
STASH_API int32_t stash_clip_backward(const stash_tensor_view* dy, const stash_encoded_tensor* stash,
                                      const stash_tensor_view* dx, float lower, float upper, int32_t rule,
                                      const stash_execution_context* context);
/** Gradient from the dense x or y. */
STASH_API int32_t stash_clip_backward_dense(const stash_tensor_view* dy, const stash_tensor_view* x,
                                            const stash_tensor_view* dx, float lower, float upper,
                                            int32_t rule, const stash_execution_context* context);

/** pool.hpp. */
typedef struct stash_pool_window {
  size_t struct_size;
  int32_t kernel_h, kernel_w; /**< 0: 2 */
  int32_t stride_h, stride_w; /**< 0: 2 */
  int32_t pad_top, pad_left;
  int32_t kernel_d, stride_d, pad_front;      /**< kernel_d, stride_d: 0 means 1 */
  int32_t dilation_h, dilation_w, dilation_d; /**< 0: 1 */
  int32_t layout;                             /**< STASH_LAYOUT_CHANNELS_LAST ... */
  int32_t reserved;                           /**< 0 */
} stash_pool_window;

/** pool.hpp. `index` may be null. */
STASH_API int32_t stash_max_pool_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                                         const stash_pool_window* window, const stash_encoded_view* index,
                                         int32_t rule, const stash_execution_context* context);
/** Gradient from the window index. */
STASH_API int32_t stash_max_pool_backward(const stash_tensor_view* dy, const stash_encoded_tensor* index,
                                          const stash_tensor_view* dx, const stash_pool_window* window,
                                          const stash_execution_context* context);
/** Gradient with the argmaxes found again from the dense x. */
STASH_API int32_t stash_max_pool_backward_dense(const stash_tensor_view* dy, const stash_tensor_view* x,
                                                const stash_tensor_view* dx, const stash_pool_window* window,
                                                int32_t rule, const stash_execution_context* context);
/** pool.hpp. `code` and `index` may be null. */
STASH_API int32_t stash_relu_max_pool_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                                              const stash_pool_window* window, const stash_encoded_view* code,
                                              const stash_encoded_view* index, int32_t rule,
                                              const stash_execution_context* context);
/** Gradient from the relu_pool code. */
STASH_API int32_t stash_relu_max_pool_backward(const stash_tensor_view* dy, const stash_encoded_tensor* code,
                                               const stash_tensor_view* dx, const stash_pool_window* window,
                                               const stash_execution_context* context);
/** From the window index and a stash of the pooled output that keeps the sign. */
STASH_API int32_t stash_relu_max_pool_backward_sign(const stash_tensor_view* dy,
                                                    const stash_encoded_tensor* index,
                                                    const stash_encoded_tensor* y,
                                                    const stash_tensor_view* dx,
                                                    const stash_pool_window* window, int32_t rule,
                                                    const stash_execution_context* context);
/** From the window index and the dense pooled output. */
STASH_API int32_t stash_relu_max_pool_backward_output(const stash_tensor_view* dy,
                                                      const stash_encoded_tensor* index,
                                                      const stash_tensor_view* y, const stash_tensor_view* dx,
                                                      const stash_pool_window* window, int32_t rule,
                                                      const stash_execution_context* context);
/** Gradient with everything found again from the dense x. */
STASH_API int32_t stash_relu_max_pool_backward_dense(const stash_tensor_view* dy, const stash_tensor_view* x,
                                                     const stash_tensor_view* dx,
                                                     const stash_pool_window* window, int32_t rule,
                                                     const stash_execution_context* context);

/** pool.hpp. Both shapes have `rank` dimensions, 4 or 5. */
STASH_API int32_t stash_encode_window_index(const int64_t* flat, int32_t rank, const int64_t* y_dims,
                                            const int64_t* x_dims, const stash_pool_window* window,
                                            const stash_encoded_view* index,
                                            const stash_execution_context* context);
/** Its inverse; `index` has the shape of the pooled map, and x_dims has as many dimensions. */
STASH_API int32_t stash_decode_window_index(const stash_encoded_tensor* index, const int64_t* x_dims,
                                            const stash_pool_window* window, int64_t* flat,
                                            const stash_execution_context* context);

/** dropout.hpp. */
typedef struct stash_dropout_key {
  size_t struct_size;
  uint64_t seed;
  uint64_t step;
  uint32_t layer;
  uint32_t reserved; /**< 0 */
} stash_dropout_key;

/** dropout.hpp. Both tensors of a call are of f32, f16 or bf16. `mask` may be null. */
STASH_API int32_t stash_dropout_forward(const stash_tensor_view* x, const stash_tensor_view* y,
                                        const stash_encoded_view* mask, float probability,
                                        const stash_dropout_key* key, const stash_execution_context* context);
/** Gradient from the mask. */
STASH_API int32_t stash_dropout_backward(const stash_tensor_view* dy, const stash_encoded_tensor* mask,
                                         const stash_tensor_view* dx, float probability,
                                         const stash_execution_context* context);
/** Gradient with the decisions computed again from the key. */
STASH_API int32_t stash_dropout_backward_key(const stash_tensor_view* dy, const stash_tensor_view* dx,
                                             float probability, const stash_dropout_key* key,
                                             const stash_execution_context* context);

/* ---- owning handle ------------------------------------------------------------------------------------ */

/** A caller's allocator (memory_callbacks in memory.hpp). Must outlive what was allocated with it. */
typedef struct stash_memory_callbacks {
  size_t struct_size;
  void* user;
  void* (*allocate)(void* user, size_t bytes, size_t alignment, void* stream);
  void (*deallocate)(void* user, void* data, size_t bytes, size_t alignment, void* stream);
  int32_t space;
  int32_t reserved; /**< 0 */
} stash_memory_callbacks;

/** Values of event_kind (events.hpp). */
enum { STASH_EVENT_OVERFLOW = 1, STASH_EVENT_FALLBACK = 2, STASH_EVENT_RERUN = 3, STASH_EVENT_LATE = 4 };

/** Given to a callback; read no more than struct_size bytes of it. */
typedef struct stash_event {
  size_t struct_size;
  int32_t kind;
  int32_t reserved;
  const char* tensor; /**< never null */
  uint64_t required_bytes;
  uint64_t available_bytes;
  int64_t step;
} stash_event;

/** stash_options of stashed_tensor.hpp. Copied; what it points to must live as said there. */
typedef struct stash_handle_options {
  size_t struct_size;
  size_t capacity;                                      /**< bitmap, csr; 0: exactly what is needed */
  const stash_memory_callbacks* memory;                 /**< may be null: the library's own; copied */
  void (*notify)(void* user, const stash_event* event); /**< may be null */
  void* notify_user;
  const char* name; /**< may be null */
} stash_handle_options;

/** An encoded tensor that owns its memory (stashed_tensor). */
typedef struct stash_handle stash_handle;

/** Encodes `input`. `options` may be null. *handle is written on success only. */
STASH_API int32_t stash_handle_create(const stash_encoding* encoding, const stash_tensor_view* input,
                                      const stash_handle_options* options,
                                      const stash_execution_context* context, stash_handle** handle);
/** Memory that a layer will write, see stashed_tensor::reserve(). Before a second tensor is written there:
 * stash_handle_rewind(). */
STASH_API int32_t stash_handle_reserve(const stash_encoding* encoding, int32_t source, int32_t rank,
                                       const int64_t* dims, const stash_handle_options* options,
                                       const stash_execution_context* context, stash_handle** handle);
/** Decodes into `output`, any number of times (stashed_tensor::restore()). */
STASH_API int32_t stash_handle_restore(const stash_handle* handle, const stash_tensor_view* output,
                                       const stash_execution_context* context);
/** Fails if a layer left a status in the report (stashed_tensor::check()). */
STASH_API int32_t stash_handle_check(const stash_handle* handle, const stash_execution_context* context);
/** Makes a handle ready for the next tensor that a layer writes (stashed_tensor::rewind()). */
STASH_API int32_t stash_handle_rewind(stash_handle* handle, const stash_execution_context* context);
/** Bytes held, bookkeeping included; and those of the dense tensor. Either pointer may be null. */
STASH_API int32_t stash_handle_bytes(const stash_handle* handle, size_t* bytes, size_t* dense_bytes);
/** The encoded bytes, for layers; valid as long as the handle. `view->struct_size` is set by the caller. */
STASH_API int32_t stash_handle_view(stash_handle* handle, stash_encoded_view* view);
/** How the tensor is encoded. `encoding->struct_size` is set by the caller. */
STASH_API int32_t stash_handle_encoding(const stash_handle* handle, stash_encoding* encoding);
/** The encoded tensor for layers that read it; what it points to is valid as long as the handle.
 * `tensor->struct_size` is set by the caller. */
STASH_API int32_t stash_handle_tensor(stash_handle* handle, stash_encoded_tensor* tensor);
/** Asks for size and density without waiting. */
STASH_API int32_t stash_handle_size(const stash_handle* handle, const stash_execution_context* context,
                                    stash_size_query** query);
/** Null is fine. */
STASH_API void stash_handle_destroy(stash_handle* handle);

/* ---- swap to the host --------------------------------------------------------------------------------- */

/** swapper_options of swap.hpp. Copied; callbacks must work as long as the swapper and its handles. */
typedef struct stash_swapper_options {
  size_t struct_size;
  int32_t space;                                        /**< STASH_SPACE_HOST or STASH_SPACE_DEVICE */
  int32_t reserved;                                     /**< 0 */
  const stash_memory_callbacks* host;                   /**< may be null: the library's own */
  const stash_memory_callbacks* memory;                 /**< may be null: the library's own */
  size_t host_limit_bytes;                              /**< 0: no limit */
  size_t residency_limit_bytes;                         /**< 0: the library's default */
  int64_t ahead;                                        /**< 0: no limit */
  size_t chunk_bytes;                                   /**< 0: the library's default */
  void (*notify)(void* user, const stash_event* event); /**< may be null; hears of late, from any thread */
  void* notify_user;
  size_t leaving_limit_bytes; /**< 0: the library's default */
} stash_swapper_options;

/** swap_request of swap.hpp. A handle that has a name keeps it. */
typedef struct stash_swap_request {
  size_t struct_size;
  const char* name;    /**< may be null */
  int64_t needed_at;   /**< 0 if has_needed_at is 0 */
  size_t bytes_in_use; /**< of a sparse handle; 0: as far as it is known without waiting */
  int32_t priority;
  int32_t has_needed_at; /**< 0 or 1 */
  int32_t null_if_full;  /**< 1: success and a null handle where there is not enough memory on the host */
  int32_t reserved;      /**< 0 */
} stash_swap_request;

/** swap_statistics of swap.hpp; struct_size is set by the caller. */
typedef struct stash_swap_statistics {
  size_t struct_size;
  uint64_t bytes_out;
  uint64_t bytes_in;
  uint64_t bytes_in_flight;
  uint64_t host_bytes;
  uint64_t host_peak_bytes;
  uint64_t resident_bytes;
  uint64_t resident_peak_bytes;
  uint64_t late;
  uint64_t failures;
} stash_swap_statistics;

/** Moves tensors to the host and back (swapper). May be used by any number of threads. */
typedef struct stash_swapper stash_swapper;
/** A tensor on the host (swapped). One thread at a time. */
typedef struct stash_swapped stash_swapped;

/** `options` may be null. *swapper is written on success only. */
STASH_API int32_t stash_swapper_create(const stash_swapper_options* options, stash_swapper** swapper);
/** Waits for copies under way. All its handles must have been destroyed. Null is fine. */
STASH_API void stash_swapper_destroy(stash_swapper* swapper);

/** swapper::swap_out() of raw bytes. `request` may be null. *swapped is written on success only. */
STASH_API int32_t stash_swapper_out(stash_swapper* swapper, const void* data, size_t bytes,
                                    const stash_swap_request* request, const stash_execution_context* context,
                                    stash_swapped** swapped);
/** Of a dense tensor. */
STASH_API int32_t stash_swapper_out_tensor(stash_swapper* swapper, const stash_tensor_view* tensor,
                                           const stash_swap_request* request,
                                           const stash_execution_context* context, stash_swapped** swapped);
/** Of an encoded tensor, which stays the caller's and must stay as it is until stash_swapped_wait_out(). */
STASH_API int32_t stash_swapper_out_handle(stash_swapper* swapper, const stash_handle* handle,
                                           const stash_swap_request* request,
                                           const stash_execution_context* context, stash_swapped** swapped);
/** Of an encoded tensor that is given up: *handle becomes null on success, and its memory is given back as
 * soon as the copy has ended. It stays the caller's if the call fails, or writes a null handle. */
STASH_API int32_t stash_swapper_out_owned(stash_swapper* swapper, stash_handle** handle,
                                          const stash_swap_request* request,
                                          const stash_execution_context* context, stash_swapped** swapped);
/** Says where the caller is (swapper::reached()). */
STASH_API int32_t stash_swapper_reached(stash_swapper* swapper, int64_t position);
/** What the swapper has done and holds. */
STASH_API int32_t stash_swapper_statistics(const stash_swapper* swapper, stash_swap_statistics* statistics);

/** After this the source may be reused (swapped::wait_out()). */
STASH_API int32_t stash_swapped_wait_out(stash_swapped* swapped, const stash_execution_context* context);
/** 1 in *ended if the copy to the host has ended. Never blocks. */
STASH_API int32_t stash_swapped_out_ended(const stash_swapped* swapped, int32_t* ended);
/** Begins to bring the tensor back ahead of use. */
STASH_API int32_t stash_swapped_in(stash_swapped* swapped, const stash_execution_context* context);
/** Begins to bring it back into the caller's memory. */
STASH_API int32_t stash_swapped_in_to(stash_swapped* swapped, void* to, size_t bytes,
                                      const stash_execution_context* context);
/** Ends that, or copies now; where the bytes are goes to *data, which may be null. */
STASH_API int32_t stash_swapped_wait_in(stash_swapped* swapped, const stash_execution_context* context,
                                        void** data);
/** Gives back the swapper's memory that stash_swapped_wait_in() said. */
STASH_API int32_t stash_swapped_leave(stash_swapped* swapped, const stash_execution_context* context);
/** The dense tensor into `output` (swapped::restore()); `check` 1: waits on a device for what it says of the
 * bytes. */
STASH_API int32_t stash_swapped_restore(stash_swapped* swapped, const stash_tensor_view* output,
                                        int32_t check, const stash_execution_context* context);
/** The encoded tensor as a handle of the swapper's memory, which must be destroyed before the swapper. */
STASH_API int32_t stash_swapped_take(stash_swapped* swapped, const stash_execution_context* context,
                                     stash_handle** handle);
/** Bytes that are copied, each way. */
STASH_API int32_t stash_swapped_bytes(const stash_swapped* swapped, size_t* bytes);
/** Gives up the tensor and all memory that the handle has (swapped::reset()). Null is fine. */
STASH_API void stash_swapped_destroy(stash_swapped* swapped);

/* ---- planner ------------------------------------------------------------------------------------------ */

/** planning.hpp. */
typedef struct stash_plan_options {
  size_t struct_size;
  const char* policy;    /**< null: "lossless" */
  const char* force;     /**< null: nothing */
  const char* machine;   /**< null: "" */
  int64_t budget_bytes;  /**< 0: smallest peak */
  double slot_margin;    /**< 0: the planner's default; negative: none */
  double overflow_share; /**< 0: the planner's default; negative: none */
  int32_t threads;       /**< 0: 1 */
  int32_t reserved;      /**< 0 */
  const char* values;    /**< of policies auto and gist; null: "" */
  const char* model;     /**< null: "" */
  int32_t swap;          /**< 0: nothing moves to the host */
  int32_t evaluations;   /**< with a model; 0: the planner's default */
  int32_t no_layout;     /**< 0: buffers get offsets; 1: they get none */
  /** 0: ops keep the order of the graph; 1: they get another one where that needs less memory */
  int32_t any_order;
} stash_plan_options;

/** Texts end with a zero byte and are given back with stash_free_text(). `options` may be null. Written on
 * success only. */
STASH_API int32_t stash_plan(const char* graph_json, const stash_plan_options* options, char** plan_json);
/**
 * STASH_OK for a valid plan; STASH_VERIFICATION_FAILED and, if `findings` is not null, what is wrong with it,
 * one finding a line; STASH_BAD_FORMAT for text that is no plan.
 */
STASH_API int32_t stash_verify_plan(const char* plan_json, char** findings);
/** Says for every stashed tensor of a plan how it is kept and why. */
STASH_API int32_t stash_explain_plan(const char* plan_json, char** text);
/** Null is fine. */
STASH_API void stash_free_text(char* text);

/* NOLINTEND(modernize-use-using, modernize-deprecated-headers) */

#ifdef __cplusplus
}
#endif

#endif
