// The selective scan on the CPU, behind a C interface (struct ScanProblem in problem.h):
//
//     h_t = exp(dt_t A) h_{t-1} + dt_t u_t B_t       y_t = <C_t, h_t> + skip u_t       z_t = sum_m mix_t y_t
//
// Lanes of the vector registers are channels, so B and C are broadcast and nothing is summed inside a register.
// The kernels are compiled three times in this one file, and the processor is asked which of them it can run.
// No option beyond -O3 -std=c++17 -shared -fPIC is needed (-pthread before glibc 2.34).

#include "problem.h"

namespace scan {

#define KERNELS "kernels.inl"
#include "instructions.inl"
#include "run.inl"

}  // namespace scan

using namespace scan;

extern "C" {

// The instruction set that a problem will be run with: 1 baseline, 2 AVX2, 3 AVX-512.
int msbench_scan_instructions(const ScanProblem* problem) { return choose(problem->instructions); }

// Lets all kernels of this library run in the threads of an OpenMP runtime, or, with nulls, in their own.
void msbench_share_threads(decltype(Team::parallel) parallel, decltype(Team::number) number,
                           decltype(Team::most) most) {
    team = {parallel, number, most};
}

// out (b, l, d) where there is mix, else (b, l, m, d). kept: null, or the array that the backward will want, on a border
// of 64 bytes: b l m n / 16 lines of channels, steps rounded up to 16 and channels to 64 bytes. All four return 0, or
// not 0 where memory ran out.
int msbench_scan_forward_f32(const ScanProblem* problem, float* out, float* kept) {
    return RUN(run_forward, *problem, out, kept);
}

int msbench_scan_forward_f64(const ScanProblem* problem, double* out, double* kept) {
    return RUN_DOUBLE(run_forward, *problem, out, kept);
}

// gout: gradient of out. Every element of every gradient is written.
int msbench_scan_backward_f32(const ScanProblem* problem, const float* gout, const float* kept,
                              const ScanGradients* gradients) {
    return RUN(run_backward, *problem, gout, kept, *gradients);
}

int msbench_scan_backward_f64(const ScanProblem* problem, const double* gout, const double* kept,
                              const ScanGradients* gradients) {
    return RUN_DOUBLE(run_backward, *problem, gout, kept, *gradients);
}
}
