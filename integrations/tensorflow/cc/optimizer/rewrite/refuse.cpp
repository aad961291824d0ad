// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/refuse.hpp"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "optimizer/rewrite/edited_graph.hpp"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace stash_tf {

namespace {

REGISTER_OP("StashRefuse")
    .Attr("message: string")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); })
    .Doc("Fails with its message.");

class refuse_kernel : public tensorflow::OpKernel {
 public:
  explicit refuse_kernel(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("message", &message_));
  }
  void Compute(tensorflow::OpKernelContext* context) override {
    context->SetStatus(absl::ResourceExhaustedError(message_));
  }

 private:
  std::string message_;
};

REGISTER_KERNEL_BUILDER(Name("StashRefuse").Device(tensorflow::DEVICE_CPU), refuse_kernel);
REGISTER_KERNEL_BUILDER(Name("StashRefuse").Device(tensorflow::DEVICE_GPU), refuse_kernel);

bool may_wait_to_begin(const std::string& op) {
  return op != "Const" && !is_control_flow(op) && !is_outside(op);
}

}  // namespace

tensorflow::GraphDef refuse(const tensorflow::GraphDef& original, const graph_view& graph,
                            const step& analysis, const control_flow& flow, const std::string& message) {
  // It has no inputs and stands outside of loops and branches, so that it runs first and always; all else
  // waits for it. What has begun when a step ends is not always taken back: a TemporaryVariable, which
  // TensorFlow's memory optimizer makes for sums, is left over and is in the way of every later step.
  edited_graph edited(original, graph);
  tensorflow::NodeDef* n = edited.add_node("stash/refused", "StashRefuse", analysis.device_node);
  (*n->mutable_attr())["message"].set_s(message);
  const std::string name = n->name();
  for (int i = 0; i < graph.size(); ++i) {
    const bool begins = absl::EndsWith(graph.op(i), "Enter");
    const bool outside =
        begins ? graph.inputs(i).empty() || flow.frame(graph.inputs(i)[0].node) == 0 : flow.frame(i) == 0;
    if (outside && (begins || may_wait_to_begin(graph.op(i)))) edited.wait_for(i, name);
  }
  return edited.take();
}

}  // namespace stash_tf
