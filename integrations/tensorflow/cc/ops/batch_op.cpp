// SPDX-License-Identifier: Apache-2.0
// Registration of the op that sees how large a batch is.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("StashBatch")
    .Input("x: T")
    .Attr("T: type")
    .Attr("per_sample: int >= 1")
    .Attr("tensor: string = ''")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Counts samples: the elements of its counter are those of x divided by per_sample. Reads no values.

x: The tensor.
per_sample: Elements of x for one sample.
tensor: A name for the counters.
)doc");
