// Numbers, places and masks of one Pathfinder image; see pathfinder.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "pathfinder.h"

namespace {

constexpr int DEGREES = 360, RAW_SHARE = 100;

struct Point {
    int32_t y, x;
};

Point operator+(Point a, Point b) { return {a.y + b.y, a.x + b.x}; }
Point at(const int32_t* table, int index) { return {table[2 * index], table[2 * index + 1]}; }

// A drawn paddle, as the caller reads it.
struct Paddle {
    int32_t orientation, y, x;
};

// Position and orientation from which a snake continues.
struct Tip {
    Point pivot;
    int32_t orientation;
};

struct Stream {
    uint64_t state;

    int64_t below(int64_t bound) {
        uint64_t z = state += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return static_cast<int64_t>((z ^ (z >> 31)) % static_cast<uint64_t>(bound));
    }
};

// The masks of one image, with a border around it.
struct Canvas {
    const PathfinderTables& t;
    int window, stride;
    std::vector<uint8_t> mask, spread;

    Canvas(const PathfinderTables& tables, int side)
        : t(tables), window(side), stride(side + 2 * tables.border), mask(stride * stride), spread(mask.size()) {
        clear();
    }

    void clear() {
        std::memcpy(mask.data(), t.canvas, mask.size());
        std::memcpy(spread.data(), t.spread, spread.size());
    }

    int64_t offset(Point p) const { return int64_t{p.y + t.border} * stride + p.x + t.border; }
    bool inside(Point p) const { return p.y >= 0 && p.y < window && p.x >= 0 && p.x < window; }

    bool overlaps(const Paddle& p) const {
        const int side = t.side, half = side / 2;
        const uint8_t* limit = t.limits + int64_t{p.orientation} * side * side;
        const uint8_t* row = mask.data() + offset({p.y - half, p.x - half});
        for (int y = 0; y < side; ++y, row += stride, limit += side) {
            uint8_t found = 0;
            for (int x = 0; x < side; ++x) found |= row[x] > limit[x];
            if (found) return true;
        }
        return false;
    }

    void merge(const Paddle& p) {
        const int side = t.side, half = side / 2, wide = side + 2 * t.margin, reach = half + t.margin;
        const uint8_t* from = t.masks + int64_t{p.orientation} * side * side;
        const int low = std::max(0, half - p.x), high = std::min(side, window + half - p.x);
        const int last = std::min(side, window + half - p.y);
        for (int y = std::max(0, half - p.y); y < last; ++y) {
            uint8_t* row = mask.data() + offset({p.y - half + y, p.x - half});
            for (int x = low; x < high; ++x) row[x] = std::max(row[x], from[y * side + x]);
        }
        from = t.spreads + int64_t{p.orientation} * wide * wide;
        uint8_t* row = spread.data() + offset({p.y - reach, p.x - reach});
        const int step = stride;
        for (int y = 0; y < wide; ++y, row += step, from += wide) {
            for (int x = 0; x < wide; ++x) row[x] = std::max(row[x], from[x]);
        }
    }
};

}  // namespace
