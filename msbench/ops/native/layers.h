// The arguments of what surrounds a scan: banks of filters, step sizes, batch norm. Arrays are contiguous, channels last,
// but for those with strides, which count elements.
#pragma once

#include <array>

#include "problem.h"

// One filter a level and side: with two sides low-pass and high-pass, and the low-pass of a level is what the next
// one reads, with twice the dilation. With one side there is one level.
extern "C" struct BankProblem {
    int64_t b, l, d, levels, sides, k, dilation;
    int64_t x_example, x_step;  // strides
    const void* x;              // (b, l, d)
    const void* taps;           // (levels, sides, k, d)
    const void* bias;           // (levels, sides, d) or null
    int32_t threads, instructions;
};

// dt = softplus(weight low + bias)
extern "C" struct StepsProblem {
    int64_t rows, m, r, d;
    int64_t low_step;    // stride of low from one stream to the next, and from the last to the next row's first
    const void* low;     // (rows, m, r)
    const void* weight;  // (m, r, d)
    const void* bias;    // (m, d)
    int32_t threads, instructions;
};

// y = (x - mean) / sqrt(var + epsilon) weight + bias
extern "C" struct NormProblem {
    int64_t rows, d;
    double epsilon;
    const void* x;               // (rows, d)
    const void* mask;            // (rows,), 1 where a row is real, else 0
    const void *weight, *bias;   // (d,)
    int32_t zero;                // 1: rows that are not real become 0
    int32_t threads, instructions;
};

namespace scan {

// Steps that all levels take before the next ones: the arrays of 16 channels, 4 KiB each, stay in the first-level
// cache from level to level.
constexpr int64_t CHUNK = 64;

// Elements worth a thread, see UPDATES_PER_THREAD.
constexpr int64_t ELEMENTS_PER_THREAD = 50'000;

inline int threads_for(int64_t elements, int64_t tasks, int threads) {
    return static_cast<int>(
        std::max<int64_t>(1, std::min({int64_t{threads}, tasks, elements / ELEMENTS_PER_THREAD})));
}

// How far the levels of a bank look back; taps that would reach before the first step are left out.
struct Reach {
    explicit Reach(const BankProblem& p) {
        int64_t dilation = p.dilation;
        for (int64_t s = 0; s < p.levels; ++s) {
            steps.push_back(dilation);
            taps.push_back(std::min(p.k, ceil_div(p.l, dilation)));
            back.push_back((taps.back() - 1) * dilation);
            dilation = std::min(2 * dilation, std::max<int64_t>(p.l, 1));  // beyond l it makes no difference
        }
        before.assign(back.begin(), back.end());
        for (size_t s = back.size() - 1; s-- > 0;) before[s] += before[s + 1];
    }

    std::vector<int64_t> steps, taps;
    std::vector<int64_t> back;    // of this level alone
    std::vector<int64_t> before;  // together with the levels that follow
};

}  // namespace scan
