// The best that this processor can do with the work of a scan, behind a C interface (bounds.h): its arithmetic in
// registers, without memory, and its memory traffic, without arithmetic. There is a version of both for each
// instruction set, in the threads that the scan has too. Both return 0, or not 0 where memory ran out.

#include "../../../ops/native/tasks.h"
#include "bounds.h"

namespace scan {

#define KERNELS "../../analysis/benchmarks/native/bound_kernels.inl"
#include "../../../ops/native/instructions.inl"
#include "../../../ops/native/run.inl"

}  // namespace scan

using namespace scan;

extern "C" {

// found: RESULTS numbers a thread, see bound_kernels.inl; updates: of a state, by all threads together.
int msbench_bound_arithmetic(const ArithmeticProblem* p, float* found, int64_t* updates) {
    return RUN(run_arithmetic, *p, found, updates);
}

// sum: of what was read.
int msbench_bound_traffic(const TrafficProblem* p, double* sum) { return RUN(run_traffic, *p, sum); }
}
