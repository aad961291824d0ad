// SPDX-License-Identifier: Apache-2.0
// Registration of the ops that move a tensor to the host and back.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("StashSwapOut")
    .Input("x: T")
    .Output("host: T")
    .Attr("T: {float, half, bfloat16, bool, uint8} = DT_FLOAT")
    .Attr("tensor: string = ''")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Copies a tensor to the memory of the host.

x: The tensor.
host: The same on the host.
tensor: A name for the counters.
)doc");

REGISTER_OP("StashSwapIn")
    .Input("host: T")
    .Output("y: T")
    .Attr("T: {float, half, bfloat16, bool, uint8} = DT_FLOAT")
    .Attr("tensor: string = ''")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Copies a tensor from the memory of the host to that of the device.

host: What StashSwapOut has copied.
y: The tensor.
tensor: A name for the counters.
)doc");
