// cuBLAS and cuBLASLt: products compute nothing, but their memory accesses are
// recorded.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstdint>
#include <cstring>

#include "tests/virtual_gpu/counters.h"
#include "tests/virtual_gpu/streams.h"

namespace gpu = rankwise::virtual_gpu;

namespace {

struct Handle {
  cudaStream_t stream = nullptr;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
};

Handle& Of(cublasHandle_t handle) { return *reinterpret_cast<Handle*>(handle); }

size_t BytesOf(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_64F:
    case CUDA_C_32F:
      return 8;
    case CUDA_C_64F:
      return 16;
    default:
      return 1;
  }
}

// Column-major matrices in memory.
struct Matrix {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t leading = 0;
  int batch = 1;
  int64_t stride = 0;  // in elements, between matrices of a batch

  size_t bytes() const {
    if (rows == 0 || columns == 0 || batch == 0) return 0;
    const auto last =
        static_cast<uint64_t>(batch - 1) * static_cast<uint64_t>(stride) +
        (columns - 1) * static_cast<uint64_t>(leading);
    return (last + rows) * BytesOf(type);
  }
};

Matrix Operand(cublasOperation_t operation, cudaDataType type, int rows,
               int columns, int64_t leading, int batch, int64_t stride) {
  if (operation != CUBLAS_OP_N) std::swap(rows, columns);
  return {type,
          static_cast<uint64_t>(rows),
          static_cast<uint64_t>(columns),
          leading,
          batch,
          stride};
}

// About an H100's rate.
double FlopsPerSecond(cudaDataType type) {
  return BytesOf(type) >= 4 ? 5e13 : 5e14;
}
constexpr double kLaunchSeconds = 5e-6;

cublasStatus_t Multiply(cudaStream_t stream, const void* a, const Matrix& a_is,
                        const void* b, const Matrix& b_is, void* c,
                        const Matrix& c_is) {
  ++gpu::Counts().launches;
  gpu::Operation product;
  product.name = "matrix product";
  const double values = static_cast<double>(c_is.rows * c_is.columns) *
                        static_cast<double>(c_is.batch);
  const double depth = static_cast<double>(a_is.rows * a_is.columns) /
                       static_cast<double>(c_is.rows);
  product.seconds =
      kLaunchSeconds + 2 * values * depth / FlopsPerSecond(a_is.type);
  product.accesses = {{a, a_is.bytes(), false},
                      {b, b_is.bytes(), false},
                      {c, c_is.bytes(), true}};
  return gpu::Enqueue(stream, std::move(product)) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t Gemm(cublasHandle_t handle, cublasOperation_t of_a,
                    cublasOperation_t of_b, int m, int n, int k, const void* a,
                    cudaDataType a_type, int lda, int64_t a_stride,
                    const void* b, cudaDataType b_type, int ldb,
                    int64_t b_stride, void* c, cudaDataType c_type, int ldc,
                    int64_t c_stride, int batch) {
  return Multiply(Of(handle).stream, a,
                  Operand(of_a, a_type, m, k, lda, batch, a_stride), b,
                  Operand(of_b, b_type, k, n, ldb, batch, b_stride), c,
                  Operand(CUBLAS_OP_N, c_type, m, n, ldc, batch, c_stride));
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete &Of(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  Of(handle).stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  *stream = Of(handle).stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  Of(handle).math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = Of(handle).math_mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle,
                                       cublasPointerMode_t mode) {
  Of(handle).pointer_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle,
                                       cublasPointerMode_t* mode) {
  *mode = Of(handle).pointer_mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t of_a,
                              cublasOperation_t of_b, int m, int n, int k,
                              const float*, const float* a, int lda,
                              const float* b, int ldb, const float*, float* c,
                              int ldc) {
  return Gemm(handle, of_a, of_b, m, n, k, a, CUDA_R_32F, lda, 0, b, CUDA_R_32F,
              ldb, 0, c, CUDA_R_32F, ldc, 0, 1);
}
cublasStatus_t cublasSgemmStridedBatched(
    cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b,
    int m, int n, int k, const float*, const float* a, int lda,
    long long a_stride, const float* b, int ldb, long long b_stride,
    const float*, float* c, int ldc, long long c_stride, int batch) {
  return Gemm(handle, of_a, of_b, m, n, k, a, CUDA_R_32F, lda, a_stride, b,
              CUDA_R_32F, ldb, b_stride, c, CUDA_R_32F, ldc, c_stride, batch);
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t of_a,
                            cublasOperation_t of_b, int m, int n, int k,
                            const void*, const void* a, cudaDataType a_type,
                            int lda, const void* b, cudaDataType b_type,
                            int ldb, const void*, void* c, cudaDataType c_type,
                            int ldc, cublasComputeType_t, cublasGemmAlgo_t) {
  return Gemm(handle, of_a, of_b, m, n, k, a, a_type, lda, 0, b, b_type, ldb, 0,
              c, c_type, ldc, 0, 1);
}
cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b,
    int m, int n, int k, const void*, const void* a, cudaDataType a_type,
    int lda, long long a_stride, const void* b, cudaDataType b_type, int ldb,
    long long b_stride, const void*, void* c, cudaDataType c_type, int ldc,
    long long c_stride, int batch, cublasComputeType_t, cublasGemmAlgo_t) {
  return Gemm(handle, of_a, of_b, m, n, k, a, a_type, lda, a_stride, b, b_type,
              ldb, b_stride, c, c_type, ldc, c_stride, batch);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Matrix{type, rows, columns, leading, 1, 0});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
    const void* value, size_t bytes) {
  auto& matrix = *reinterpret_cast<Matrix*>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    std::memcpy(&matrix.batch, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    std::memcpy(&matrix.stride, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<Matrix*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* results,
    int* count) {
  results[0] = {};
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t,
                              const void*, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void*,
                              const void*, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t*, void*, size_t,
                              cudaStream_t stream) {
  const auto matrix = [](cublasLtMatrixLayout_t layout) {
    return *reinterpret_cast<Matrix*>(layout);
  };
  return Multiply(stream, a, matrix(a_layout), b, matrix(b_layout), d,
                  matrix(d_layout));
}

}  // extern "C"
