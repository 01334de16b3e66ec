// The arguments of the loops that measure what a processor can do at best.
#pragma once

#include <cstdint>

// The arithmetic of the scan in registers.
extern "C" struct ArithmeticProblem {
    int64_t n;         // states of a channel
    int64_t rounds;    // passes over them in each thread
    int32_t backward;  // 1: the instructions of the backward, 0: those of the forward
    int32_t threads, instructions;  // as in ScanProblem
};

// Arrays that are read and written once.
extern "C" struct TrafficProblem {
    const float* from;  // read
    float* to;          // written
    int64_t read, written;  // numbers
    int32_t threads, instructions;
};
