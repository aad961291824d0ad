// SPDX-License-Identifier: Apache-2.0
// What users of sparse matrices do: dense to CSR with cuSPARSE, with the read of the count in the middle that
// its interface asks for.

#include "bench/gpu/baselines/baselines.hpp"

#if defined(STASH_HAS_CUSPARSE)

#include <cusparse.h>

#include "bench/gpu/baselines/shared_library.hpp"
#include "bench/gpu/cuda_check.hpp"

namespace stash::gpu {
namespace {

constexpr std::int64_t columns = 256;  // as csr has

void check(cusparseStatus_t result, const char* call) {
  if (result != CUSPARSE_STATUS_SUCCESS)
    throw failure(std::string(call) + ": cuSPARSE status " + std::to_string(static_cast<int>(result)));
}

struct cusparse {
  shared_library library{"libcusparse.so." STASH_CUSPARSE_VERSION};
  decltype(::cusparseCreate)* create = library["cusparseCreate"];
  decltype(::cusparseDestroy)* destroy = library["cusparseDestroy"];
  decltype(::cusparseSetStream)* set_stream = library["cusparseSetStream"];
  decltype(::cusparseCreateDnMat)* create_dn_mat = library["cusparseCreateDnMat"];
  decltype(::cusparseDestroyDnMat)* destroy_dn_mat = library["cusparseDestroyDnMat"];
  decltype(::cusparseCreateCsr)* create_csr = library["cusparseCreateCsr"];
  decltype(::cusparseDestroySpMat)* destroy_sp_mat = library["cusparseDestroySpMat"];
  decltype(::cusparseSpMatGetSize)* sp_mat_get_size = library["cusparseSpMatGetSize"];
  decltype(::cusparseCsrSetPointers)* csr_set_pointers = library["cusparseCsrSetPointers"];
  decltype(::cusparseDenseToSparse_bufferSize)* dense_to_sparse_buffer_size =
      library["cusparseDenseToSparse_bufferSize"];
  decltype(::cusparseDenseToSparse_analysis)* dense_to_sparse_analysis =
      library["cusparseDenseToSparse_analysis"];
  decltype(::cusparseDenseToSparse_convert)* dense_to_sparse_convert =
      library["cusparseDenseToSparse_convert"];
};

cudaDataType type_of(dtype type) {
  return type == dtype::f32 ? CUDA_R_32F : type == dtype::f16 ? CUDA_R_16F : CUDA_R_16BF;
}

class conversion {
 public:
  conversion(const map_form& form, shared_map x)
      : x_(std::move(x)),
        rows_(x_->elements() / columns),
        offsets_(static_cast<std::size_t>(rows_ + 1) * 4),
        indices_(static_cast<std::size_t>(x_->elements()) * 4),
        values_(x_->bytes()) {
    check(api_.create(&handle_), "cusparseCreate");
    const cudaDataType type = type_of(form.type);
    check(api_.create_dn_mat(&dense_, rows_, columns, columns, x_->data(), type, CUSPARSE_ORDER_ROW),
          "cusparseCreateDnMat");
    check(api_.create_csr(&sparse_, rows_, columns, 0, offsets_.data(), nullptr, nullptr, CUSPARSE_INDEX_32I,
                          CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, type),
          "cusparseCreateCsr");
    std::size_t bytes = 0;
    check(api_.dense_to_sparse_buffer_size(handle_, dense_, sparse_, algorithm, &bytes),
          "cusparseDenseToSparse_bufferSize");
    workspace_ = std::make_unique<memory>(bytes);
  }
  ~conversion() {
    (void)api_.destroy_sp_mat(sparse_);
    (void)api_.destroy_dn_mat(dense_);
    (void)api_.destroy(handle_);
  }
  conversion(const conversion&) = delete;
  conversion& operator=(const conversion&) = delete;

  void run(void* stream) {
    check(api_.set_stream(handle_, cuda_stream(stream)), "cusparseSetStream");
    check(api_.dense_to_sparse_analysis(handle_, dense_, sparse_, algorithm, workspace_->data()),
          "cusparseDenseToSparse_analysis");
    std::int64_t rows = 0, cols = 0;
    check(api_.sp_mat_get_size(sparse_, &rows, &cols, &nonzeros_), "cusparseSpMatGetSize");
    check(api_.csr_set_pointers(sparse_, offsets_.data(), indices_.data(), values_.data()),
          "cusparseCsrSetPointers");
    check(api_.dense_to_sparse_convert(handle_, dense_, sparse_, algorithm, workspace_->data()),
          "cusparseDenseToSparse_convert");
  }
  std::uint64_t kept_bytes(dtype type) const {
    return offsets_.size() + static_cast<std::uint64_t>(nonzeros_) * (4 + size_of(type));
  }

 private:
  static constexpr cusparseDenseToSparseAlg_t algorithm = CUSPARSE_DENSETOSPARSE_ALG_DEFAULT;

  cusparse api_;
  shared_map x_;
  std::int64_t rows_, nonzeros_ = 0;
  memory offsets_, indices_, values_;
  std::unique_ptr<memory> workspace_;
  cusparseHandle_t handle_ = nullptr;
  cusparseDnMatDescr_t dense_ = nullptr;
  cusparseSpMatDescr_t sparse_ = nullptr;
};

}  // namespace

std::vector<measured_case> cusparse_baselines() {
  return {{"baseline/cusparse_dense_to_csr", takes_floats, [](const map_form& form, map_source& maps) {
             const auto work = std::make_shared<conversion>(form, maps.after_relu(form));
             work->run(nullptr);
             wait_for_device();
             const std::uint64_t dense = static_cast<std::uint64_t>(form.bytes);
             const std::uint64_t kept = work->kept_bytes(form.type);
             return unchecked([=](void* stream) { work->run(stream); }, dense + kept, dense, kept);
           }}};
}

}  // namespace stash::gpu

#else

namespace stash::gpu {

std::vector<measured_case> cusparse_baselines() {
  return {{"baseline/cusparse_dense_to_csr", takes_floats, [](const map_form&, map_source&) -> prepared_case {
             throw failure("built without the headers of cuSPARSE");
           }}};
}

}  // namespace stash::gpu

#endif
