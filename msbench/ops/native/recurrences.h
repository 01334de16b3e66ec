// The arguments of two recurrences without input-dependent states: the elementwise one, and the diagonal system that
// does not change in time. Arrays are contiguous, channels last, but for those with strides, which count elements.
#pragma once

#include "tasks.h"

// h_t = a_t h_{t-1} + x_t
extern "C" struct LinearProblem {
    int64_t b, l, d;                // a complex channel is two of d, the real part first
    int64_t a_example, a_step;      // strides of a; 0 where all examples, or steps, share it
    int64_t x_example, x_step;      // of x
    int64_t ga_example, ga_step;    // of the gradient of a; 0: it is summed over examples, or steps
    const void *a, *x;              // (b, l, d)
    int32_t complex;                // 1: channels are complex
    int32_t threads, instructions;  // see ScanProblem
};

// h_t = exp(log_decay) h_{t-1} + u_t      y_t = sum_n weight h_t + skip u_t      z_t = sum_m mix_t y_t
extern "C" struct LtiProblem {
    int64_t b, l, m, d, n;
    const void* u;                   // (b, l, m, d)
    const void *log_decay, *weight;  // (m, n, d)
    const void* skip;                // (m, d) or null
    const void* mix;                 // (b, l, m) or null
    int32_t threads, instructions;
};

extern "C" struct LtiGradients {
    void *u, *log_decay, *weight, *skip, *mix;  // shaped as the arguments; skip and mix null where those are
};

namespace scan {

// Steps worth a thread, see UPDATES_PER_THREAD: one of a state here is a fifth of one of the selective scan, and one
// of an element waits for memory.
constexpr int64_t STATES_PER_THREAD = 1'000'000;
constexpr int64_t STEPS_PER_THREAD = 100'000;

inline int threads_for(int64_t work, int64_t least, int64_t tasks, int threads) {
    return static_cast<int>(std::max<int64_t>(1, std::min({int64_t{threads}, tasks, work / least})));
}

}  // namespace scan
