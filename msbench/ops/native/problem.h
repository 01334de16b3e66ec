// The arguments of a scan.
#pragma once

#include "bank.h"

// Arrays are contiguous, channels last, but for those with strides, which count elements; see scan.cpp.
extern "C" struct ScanProblem {
    int64_t b, l, m, d, n;
    const void* u;          // (b, l, m, d); where there are taps the signal (b, l, d), with strides
    const void* dt;         // the same, or null: softplus(weight low + bias)
    const void* A;          // (m, d, n)
    const void *B, *C;      // (b, l, m, n)
    const void* skip;       // (m, d) or null
    const void* mix;        // (b, l, m) or null
    const void* low;        // (b, l, m, r), one stride from row to row
    const void* weight;     // (m, r, d)
    const void* bias;       // (m, d)
    int64_t r, low_step;    // rank; the stride of low
    const void* taps;       // (levels, 2, k, d), or null where u is the streams themselves
    const void* taps_bias;  // (levels, 2, d) or null
    int64_t levels, k, u_example, u_step;
    int32_t raw;            // 1: the input of the state is u B, not dt u B
    int32_t threads;
    int32_t instructions;  // 0: the best that the processor has; else see scan.cpp
};

extern "C" struct ScanGradients {
    // Shaped as the arguments (u and low without gaps; taps_bias also where there is none); null where those are.
    void *u, *dt, *A, *B, *C, *skip, *mix, *low, *weight, *bias, *taps, *taps_bias;
};

namespace scan {

inline int usable_threads(const ScanProblem& p, int64_t tasks) {
    const int64_t updates = p.b * p.l * p.m * p.d * p.n;
    return static_cast<int>(
        std::max<int64_t>(1, std::min({int64_t{p.threads}, tasks, updates / UPDATES_PER_THREAD})));
}

}  // namespace scan
