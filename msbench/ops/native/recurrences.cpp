// Recurrences whose decays do not depend on a state's input, on the CPU, behind a C interface (recurrences.h). As in
// scan.cpp lanes are channels, there is a version for each instruction set, and results are equal to the last bit for
// any number of threads. Every function returns 0, or 1 where memory ran out; every element of every output is written.

#include "recurrences.h"

namespace scan {

#define KERNELS "recurrence_kernels.inl"
#include "instructions.inl"
#include "run.inl"

}  // namespace scan

using namespace scan;

extern "C" {

// h (b, l, d). Then, with x the gradient of h: gx (b, l, d), and ga, whose examples and steps lie ga_example and ga_step
// apart.
int msbench_linear_forward_f32(const LinearProblem* p, float* h) { return RUN(run_linear_forward, *p, h); }
int msbench_linear_forward_f64(const LinearProblem* p, double* h) { return RUN_DOUBLE(run_linear_forward, *p, h); }
int msbench_linear_backward_f32(const LinearProblem* p, const float* h, float* gx, float* ga) {
    return RUN(run_linear_backward, *p, h, gx, ga);
}
int msbench_linear_backward_f64(const LinearProblem* p, const double* h, double* gx, double* ga) {
    return RUN_DOUBLE(run_linear_backward, *p, h, gx, ga);
}

// out (b, l, d) where there is mix, else (b, l, m, d). kept: null, or (b, l, m, d), the outputs before they are mixed,
// which the gradient of mix takes.
int msbench_lti_forward_f32(const LtiProblem* p, float* out, float* kept) {
    return RUN(run_lti_forward, *p, out, kept);
}
int msbench_lti_forward_f64(const LtiProblem* p, double* out, double* kept) {
    return RUN_DOUBLE(run_lti_forward, *p, out, kept);
}
int msbench_lti_backward_f32(const LtiProblem* p, const float* gout, const float* kept, const LtiGradients* to) {
    return RUN(run_lti_backward, *p, gout, kept, *to);
}
int msbench_lti_backward_f64(const LtiProblem* p, const double* gout, const double* kept, const LtiGradients* to) {
    return RUN_DOUBLE(run_lti_backward, *p, gout, kept, *to);
}
}
