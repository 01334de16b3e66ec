// Banks of causal filters and batch norm on the CPU, behind a C interface (layers.h). As in scan.cpp lanes are
// channels, there is a version for each instruction set, and results are equal to the last bit for any number of
// threads. Every function returns 0, or 1 where memory ran out; every element of every output is written.

#include "layers.h"

namespace scan {

#define KERNELS "layer_kernels.inl"
#include "instructions.inl"
#include "run.inl"

}  // namespace scan

using namespace scan;

extern "C" {

// out: (b, l, levels + 2, d), the streams [x, high-pass of every level, low-pass of the last]; with one side
// (b, l, d). gout as out; gx (b, l, d), gtaps and gbias as taps and bias, gbias also where there is none.
int msbench_bank_forward_f32(const BankProblem* p, float* out) { return RUN(run_bank_forward, *p, out); }
int msbench_bank_forward_f64(const BankProblem* p, double* out) { return RUN_DOUBLE(run_bank_forward, *p, out); }
int msbench_bank_backward_f32(const BankProblem* p, const float* gout, float* gx, float* gtaps, float* gbias) {
    return RUN(run_bank_backward, *p, gout, gx, gtaps, gbias);
}
int msbench_bank_backward_f64(const BankProblem* p, const double* gout, double* gx, double* gtaps, double* gbias) {
    return RUN_DOUBLE(run_bank_backward, *p, gout, gx, gtaps, gbias);
}

// Mean and (biased) variance (d,) over the real rows; then y (rows, d); then its gradients through both.
int msbench_norm_statistics_f32(const NormProblem* p, float* mean, float* var) {
    return RUN(run_norm_statistics, *p, mean, var);
}
int msbench_norm_statistics_f64(const NormProblem* p, double* mean, double* var) {
    return RUN_DOUBLE(run_norm_statistics, *p, mean, var);
}
int msbench_norm_forward_f32(const NormProblem* p, const float* mean, const float* var, float* y) {
    return RUN(run_norm_forward, *p, mean, var, y);
}
int msbench_norm_forward_f64(const NormProblem* p, const double* mean, const double* var, double* y) {
    return RUN_DOUBLE(run_norm_forward, *p, mean, var, y);
}
int msbench_norm_backward_f32(const NormProblem* p, const float* mean, const float* var, const float* gy, float* gx,
                              float* gweight, float* gbias) {
    return RUN(run_norm_backward, *p, mean, var, gy, gx, gweight, gbias);
}
int msbench_norm_backward_f64(const NormProblem* p, const double* mean, const double* var, const double* gy,
                              double* gx, double* gweight, double* gbias) {
    return RUN_DOUBLE(run_norm_backward, *p, mean, var, gy, gx, gweight, gbias);
}
}
