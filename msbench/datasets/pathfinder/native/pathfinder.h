// The arguments of drawing snakes: tables of integers that msbench/datasets/pathfinder/tables.py makes and describes.
#pragma once

#include <cstdint>

extern "C" struct PathfinderTables {
    int32_t margin, border, ends_count, side;
    const uint8_t *canvas, *spread;                   // (window + 2 border) squared
    const int32_t *heads, *pivots, *seconds;          // (360, 2, window + 2 border)
    const int32_t* cells;                             // (360, 4)
    const int32_t *kernel, *kernel_starts;            // (k, 2), (361,)
    const int32_t *ends, *advances, *weights;         // (c, 2), (360 + c, 2, window + 2 border), (360 + c, c)
    const uint8_t *masks, *limits, *spreads;          // (360 + c, s, s) twice, (360 + c, s + 2 margin, s + 2 margin)
};

extern "C" struct PathfinderProblem {
    const PathfinderTables* margins;
    int64_t least_weight, most_attempts;
    int32_t margins_count, window, contour_length, distractor_length, distractors;
    int32_t paddle_retries, distractor_retries, blocked;
};
