// The arguments of what surrounds a scan: batch norm. Arrays are contiguous, channels last.
#pragma once

#include "bank.h"

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
