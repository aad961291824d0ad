// SPDX-License-Identifier: Apache-2.0
// Max-pooling of cuDNN's graph interface, which keeps a byte for each pooled value: what its backward pass
// reads in place of x and y.

#include "bench/gpu/baselines/baselines.hpp"

#if defined(STASH_HAS_CUDNN)
#include <cudnn_version.h>
#endif

namespace stash::gpu {
namespace {

/// Windows of kernel x kernel, stride 2.
prepared_case prepare(const map_form& form, map_source& maps, std::int64_t kernel, bool backward);

}  // namespace

std::vector<measured_case> cudnn_graph_baselines() {
  std::vector<measured_case> cases;
  for (const std::int64_t kernel : {2, 3}) {
    for (const bool backward : {false, true}) {
      cases.push_back({std::string("baseline/cudnn_graph_max_pool_") + (backward ? "backward" : "forward") +
                           "_index" + (kernel == 2 ? "" : "_3x3"),
                       takes_floats, [=](const map_form& form, map_source& maps) {
                         return prepare(form, maps, kernel, backward);
                       }});
    }
  }
  return cases;
}

}  // namespace stash::gpu

#if defined(STASH_HAS_CUDNN) && CUDNN_VERSION >= 90000

#include <optional>

#include "bench/gpu/baselines/cudnn_descriptor.hpp"

namespace stash::gpu {
namespace {

/// A tensor of a graph and where it lies.
struct graph_tensor {
  cudnn_descriptor descriptor;
  std::int64_t id;
  void* data;

  /// NHWC.
  graph_tensor(const cudnn_backend& api, std::int64_t its_id, cudnnDataType_t type, const cudnn_batch& b,
               void* its_data)
      : descriptor(api, CUDNN_BACKEND_TENSOR_DESCRIPTOR), id(its_id), data(its_data) {
    const std::int64_t n = b.samples, c = b.channels, h = b.rows, w = b.width;
    descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16})
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::vector{n, c, h, w})
        .set(CUDNN_ATTR_TENSOR_STRIDES, std::vector{c * h * w, std::int64_t{1}, c * w, c})
        .finalize();
  }
};

/// One operation, ready to run on its tensors: the first plan of those that cuDNN suggests that this device
/// can run. Throws failure with cuDNN's reason where there is none.
class operation_plan {
 public:
  operation_plan(const cudnn_backend& api, const cudnn_handle& handle, cudnn_descriptor operation,
                 const std::vector<const graph_tensor*>& tensors)
      : api_(api), handle_(handle), operation_(std::move(operation)), graph_(graph_of(operation_)) {
    std::string why;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      if (!plan_) choose(mode, why);
    }
    if (!plan_) throw failure("cuDNN has no plan: " + why);
    std::int64_t bytes = 0;
    plan_->read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
    workspace_.emplace(static_cast<std::size_t>(bytes));
    std::vector<std::int64_t> ids;
    std::vector<void*> pointers;
    for (const graph_tensor* t : tensors) {
      ids.push_back(t->id);
      pointers.push_back(t->data);
    }
    pack_.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace_->data())
        .finalize();
  }

  void run(void* stream) const {
    api_.check(api_.execute(handle_.in(stream), plan_->get(), pack_.get()), "cudnnBackendExecute");
  }

 private:
  cudnn_descriptor graph_of(const cudnn_descriptor& operation) const {
    cudnn_descriptor graph(api_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_.get())
        .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation)
        .finalize();
    return graph;
  }

  /// Engines, best first; those that the device does not support are left out. Throws failure if none is
  /// left.
  std::vector<cudnn_descriptor> suggestions(cudnnBackendHeurMode_t mode) const {
    cudnn_descriptor heuristics(api_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode)
        .finalize();
    std::int64_t count =
        heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
    std::vector<cudnn_descriptor> found;
    std::vector<cudnnBackendDescriptor_t> descriptors;
    for (std::int64_t i = 0; i < count; ++i)
      descriptors.push_back(found.emplace_back(api_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
    count = heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                            descriptors.data());
    while (std::ssize(found) > count)
      found.pop_back();
    if (found.empty()) {
      throw failure(std::to_string(descriptors.size()) + " engines suggested, none of them supported" +
                    api_.explanation());
    }
    return found;
  }

  /// Sets the plan, or says why not.
  void choose(cudnnBackendHeurMode_t mode, std::string& why) {
    try {
      for (cudnn_descriptor& engine : suggestions(mode)) {
        if (!plan_) finalize(std::move(engine), why);
      }
    } catch (const failure& f) {
      note(f, why);
    }
  }
  void finalize(cudnn_descriptor engine, std::string& why) {
    try {
      cudnn_descriptor plan(api_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_.get())
          .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine)
          .finalize();
      engine_.emplace(std::move(engine));
      plan_.emplace(std::move(plan));
    } catch (const failure& f) {
      note(f, why);
    }
  }
  /// The first reason is that of the best engine.
  static void note(const failure& f, std::string& why) {
    if (why.empty()) why = f.what();
  }

  const cudnn_backend& api_;
  const cudnn_handle& handle_;
  cudnn_descriptor operation_, graph_;
  std::optional<cudnn_descriptor> engine_, plan_;
  std::optional<memory> workspace_;
  cudnn_descriptor pack_{api_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR};
};

/// A map, what is pooled of it, and where its argmaxes stood in their windows.
class index_pooling {
 public:
  index_pooling(const map_form& form, map_source& maps, std::int64_t kernel, bool backward)
      : x_(maps.before_relu(form)),
        y_(form.type, form.pooled_dims()),
        index_(static_cast<std::size_t>(y_.elements())),
        whole_(form),
        type_(cudnn_type(form.type)),
        x_of_graph_(api_, 'x', type_, whole_, x_->data()),
        y_of_graph_(api_, 'y', type_, whole_.pooled_by_two(), y_.data()),
        index_of_graph_(api_, 'i', CUDNN_DATA_INT8, whole_.pooled_by_two(), index_.data()),
        windows_(windows_of(kernel)),
        forward_(api_, handle_, forward_operation(), {&x_of_graph_, &y_of_graph_, &index_of_graph_}) {
    run_forward(nullptr);
    if (backward) {
      dx_.emplace(form.type, form.dims());
      dx_of_graph_.emplace(api_, 'd', type_, whole_, dx_->data());
      backward_.emplace(api_, handle_, backward_operation(),
                        std::vector<const graph_tensor*>{&y_of_graph_, &index_of_graph_, &*dx_of_graph_});
      run_backward(nullptr);
    }
    wait_for_device();
  }

  void run_forward(void* stream) const { forward_.run(stream); }
  /// The pooled values serve as their own gradient.
  void run_backward(void* stream) const { backward_->run(stream); }

  std::uint64_t dense_bytes() const { return x_->bytes(); }
  std::uint64_t index_bytes() const { return index_.size(); }
  /// Of either pass.
  std::uint64_t moved_bytes() const { return x_->bytes() + y_.bytes() + index_.size(); }

 private:
  /// As many windows as half of the rows and columns: those of three taps need one beyond the end.
  cudnn_descriptor windows_of(std::int64_t kernel) const {
    const std::vector<std::int64_t> none{0, 0}, padding_after{kernel - 2, kernel - 2}, size{kernel, kernel},
        step{2, 2};
    cudnn_descriptor windows(api_, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    windows.set(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_RESAMPLE_MAXPOOL)
        .set(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN)
        .set(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_NEG_INF_PAD)
        .set(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, std::int64_t{2})
        .set(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, size)
        .set(CUDNN_ATTR_RESAMPLE_STRIDES, step)
        .set(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, none)
        .set(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, padding_after)
        .finalize();
    return windows;
  }
  cudnn_descriptor forward_operation() const {
    cudnn_descriptor operation(api_, CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, windows_)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x_of_graph_.descriptor)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, y_of_graph_.descriptor)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, index_of_graph_.descriptor)
        .finalize();
    return operation;
  }
  cudnn_descriptor backward_operation() const {
    cudnn_descriptor operation(api_, CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, windows_)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, y_of_graph_.descriptor)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC, index_of_graph_.descriptor)
        .set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, dx_of_graph_->descriptor)
        .finalize();
    return operation;
  }

  cudnn_backend api_;
  cudnn_handle handle_{api_};
  shared_map x_;
  device_map y_;
  memory index_;
  cudnn_batch whole_;
  cudnnDataType_t type_;
  graph_tensor x_of_graph_, y_of_graph_, index_of_graph_;
  cudnn_descriptor windows_;
  operation_plan forward_;
  std::optional<device_map> dx_;
  std::optional<graph_tensor> dx_of_graph_;
  std::optional<operation_plan> backward_;
};

prepared_case prepare(const map_form& form, map_source& maps, std::int64_t kernel, bool backward) {
  const auto work = std::make_shared<index_pooling>(form, maps, kernel, backward);
  return unchecked(
      [=](void* stream) {
        if (backward) {
          work->run_backward(stream);
        } else {
          work->run_forward(stream);
        }
      },
      work->moved_bytes(), work->dense_bytes(), work->index_bytes());
}

}  // namespace
}  // namespace stash::gpu

#else

namespace stash::gpu {
namespace {

prepared_case prepare(const map_form&, map_source&, std::int64_t, bool) {
  throw failure("built without the headers of cuDNN 9 or newer");
}

}  // namespace
}  // namespace stash::gpu

#endif
