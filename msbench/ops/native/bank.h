// The arguments of a bank of causal filters, and how far it looks back.
#pragma once

#include "tasks.h"

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

namespace scan {

// Steps that all levels take before the next ones: the arrays of 16 channels, 4 KiB each, stay in the first-level
// cache from level to level.
constexpr int64_t CHUNK = 64;

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
