// SPDX-License-Identifier: Apache-2.0
// Registration of the op that counts sums which are added up term by term.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("StashSum")
    .Attr("terms: int >= 1")
    .Attr("tensor: string = ''")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Counts: the elements of its counter are terms. Computes nothing.

terms: Of the sum.
tensor: A name for the counters.
)doc");
