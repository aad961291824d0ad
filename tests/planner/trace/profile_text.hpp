// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A hand-written profile of Kineto: two operators, one of which launches two kernels, one through a call
/// inside.

#include <string>

namespace stash::planner {

inline std::string small_profile() {
  return R"({"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "aten::conv2d", "pid": 1, "tid": 10, "ts": 100, "dur": 50,
 "args": {"External id": 104, "Record function id": 0}},
{"ph": "X", "cat": "cpu_op", "name": "aten::cudnn_convolution", "pid": 1, "tid": 10, "ts": 101.5, "dur": 40,
 "args": {"External id": 105, "Ev Idx": 3}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 10, "ts": 110, "dur": 5,
 "args": {"External id": 7, "cbid": 211, "correlation": 7}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaMemsetAsync", "pid": 1, "tid": 10, "ts": 145, "dur": 2,
 "args": {"correlation": 8}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 11, "ts": 112, "dur": 5,
 "args": {"correlation": 9}},
{"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7, "ts": 300, "dur": 30, "args": {"correlation": 7}},
{"ph": "X", "cat": "gpu_memset", "name": "Memset", "pid": 0, "tid": 7, "ts": 340, "dur": 4, "args": {"correlation": 8}},
{"ph": "X", "cat": "kernel", "name": "other", "pid": 0, "tid": 7, "ts": 350, "dur": 1000, "args": {"correlation": 9}},
{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 10, "ts": 200, "dur": 9, "args": {"External id": 106}},
{"ph": "i", "s": "g", "name": "Iteration Start", "tid": "Trace", "ts": 5}, {"name": "process_name", "ph": "M"}],
"traceName": "x.json"})";
}

}  // namespace stash::planner
