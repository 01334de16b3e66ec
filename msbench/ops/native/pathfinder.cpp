// Snakes of Pathfinder images, behind a C interface (pathfinder.h).
//
// The same steps, in the same order and with the same numbers drawn as msbench/data/pathfinder_snakes.py, which says
// what they mean. There are no real numbers here, so results are equal to its own whatever the compiler does.

#include "pathfinder.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

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

// Where and how a snake goes on.
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
        const int half = t.side / 2;
        const uint8_t* limit = t.limits + int64_t{p.orientation} * t.side * t.side;
        const uint8_t* row = mask.data() + offset({p.y - half, p.x - half});
        for (int y = 0; y < t.side; ++y, row += stride, limit += t.side) {
            uint8_t found = 0;
            for (int x = 0; x < t.side; ++x) found |= row[x] > limit[x];
            if (found) return true;
        }
        return false;
    }

    void merge(const Paddle& p) {
        const int half = t.side / 2, wide = t.side + 2 * t.margin, reach = half + t.margin;
        const uint8_t* from = t.masks + int64_t{p.orientation} * t.side * t.side;
        const int low = std::max(0, half - p.x), high = std::min(t.side, window + half - p.x);
        for (int y = std::max(0, half - p.y); y < std::min(t.side, window + half - p.y); ++y) {
            uint8_t* row = mask.data() + offset({p.y - half + y, p.x - half});
            for (int x = low; x < high; ++x) row[x] = std::max(row[x], from[y * t.side + x]);
        }
        from = t.spreads + int64_t{p.orientation} * wide * wide;
        uint8_t* row = spread.data() + offset({p.y - reach, p.x - reach});
        for (int y = 0; y < wide; ++y, row += stride, from += wide) {
            for (int x = 0; x < wide; ++x) row[x] = std::max(row[x], from[x]);
        }
    }
};

struct Artist {
    const PathfinderProblem& p;
    const PathfinderTables& t;
    Stream& stream;
    Canvas canvas;
    std::vector<int64_t> sums;
    std::vector<uint8_t> taken, forbidden;

    Artist(const PathfinderProblem& problem, const PathfinderTables& tables, Stream& numbers)
        : p(problem),
          t(tables),
          stream(numbers),
          canvas(tables, problem.window),
          sums(tables.ends_count),
          taken(canvas.mask.size()),
          forbidden(problem.window) {}

    Point step(const int32_t* steps, int orientation, Point from) const {
        const int32_t* to = steps + int64_t{orientation} * 2 * canvas.stride + t.border;
        return {to[from.y], to[canvas.stride + from.x]};
    }

    Point head_of(const Paddle& first) const { return step(t.heads, first.orientation, {first.y, first.x}); }

    Tip tip_of(const Paddle& first) const {
        return {step(t.pivots, first.orientation, head_of(first)), first.orientation};
    }

    bool fits(const Paddle& first) const {
        return canvas.inside(head_of(first)) && canvas.inside(tip_of(first).pivot);
    }

    bool start_first(Paddle& paddle) {
        for (int tries = 0; tries <= p.paddle_retries; ++tries) {
            paddle.orientation = static_cast<int32_t>(stream.below(DEGREES));
            const int32_t* cells = t.cells + 4 * paddle.orientation;
            if (cells[1] * cells[3] == 0) return false;
            const auto cell = static_cast<int32_t>(stream.below(cells[1] * cells[3]));
            paddle.y = cells[0] + cell / cells[3];
            paddle.x = cells[2] + cell % cells[3];
            if (fits(paddle)) return true;
        }
        return false;
    }

    bool start_second(const Paddle& first, Paddle& paddle) {
        for (int tries = 0; tries <= p.paddle_retries; ++tries) {
            paddle.orientation = static_cast<int32_t>(stream.below(DEGREES));
            const auto way = static_cast<int>(stream.below(DEGREES));
            const Point tail = step(t.seconds, way, {first.y, first.x});
            paddle.y = tail.y;
            paddle.x = tail.x;
            if (fits(paddle)) return true;
        }
        return false;
    }

    bool extend(Tip& tip, const Paddle& last, Paddle& next) {
        const Point pivot = step(t.advances, tip.orientation, tip.pivot);
        const int32_t* weights = t.weights + int64_t{tip.orientation} * t.ends_count;
        int64_t sum = 0;
        for (int end = 0; end < t.ends_count; ++end) {
            sum += int64_t{weights[end]} * (255 - canvas.spread[canvas.offset(pivot + at(t.ends, end))]);
            sums[end] = sum;
        }
        if (sum < p.least_weight) return false;
        for (int tries = 0; tries <= p.paddle_retries; ++tries) {
            const int64_t drawn = stream.below(sum);
            const auto end = static_cast<int>(std::upper_bound(sums.begin(), sums.end(), drawn) - sums.begin());
            const Point place = pivot + at(t.ends, end);
            next = {DEGREES + end, place.y, place.x};
            if (canvas.overlaps(next)) continue;
            canvas.merge(last);
            tip = {pivot, next.orientation};
            return true;
        }
        return false;
    }

    bool draw_targets(Paddle* paddles) {
        canvas.clear();
        if (!start_first(paddles[0]) || !start_second(paddles[0], paddles[1])) return false;
        Tip tips[2] = {tip_of(paddles[0]), tip_of(paddles[1])};
        for (int next = 2; next < 2 * p.contour_length; ++next) {
            if (!extend(tips[next % 2], paddles[next - 2], paddles[next])) return false;
        }
        canvas.merge(paddles[2 * p.contour_length - 1]);
        return true;
    }

    // Which pixels, border included, count as taken where a distractor starts; and whether enough do not.
    bool find_taken() {
        int64_t free = 0;
        std::fill(taken.begin(), taken.end(), uint8_t{0});
        for (int y = 0; y < p.window; ++y) {
            const int64_t row = canvas.offset({y, 0});
            const bool outer = y == 0 || y == p.window - 1;
            for (int x = 0; x < p.window; ++x) {
                const uint8_t is_taken = canvas.mask[row + x] >= p.blocked;
                free += !is_taken;
                taken[row + x] = is_taken | outer;
            }
            taken[row] = taken[row + p.window - 1] = 1;
        }
        return RAW_SHARE * free >= int64_t{p.window} * p.window;
    }

    // The places (y window + x), in reading order, where a first paddle of this orientation has room.
    void find_places(int orientation, std::vector<int32_t>& places) {
        places.clear();
        for (int y = 0; y < p.window; ++y) {
            std::fill(forbidden.begin(), forbidden.end(), uint8_t{0});
            for (int k = t.kernel_starts[orientation]; k < t.kernel_starts[orientation + 1]; ++k) {
                const uint8_t* row = taken.data() + canvas.offset(Point{y, 0} + at(t.kernel, k));
                for (int x = 0; x < p.window; ++x) forbidden[x] |= row[x];
            }
            for (int x = 0; x < p.window; ++x) {
                if (!forbidden[x]) places.push_back(y * p.window + x);
            }
        }
    }

    bool start_distractor(Paddle& paddle, std::vector<int32_t>& places) {
        for (int tries = 0; tries <= p.paddle_retries; ++tries) {
            paddle.orientation = static_cast<int32_t>(stream.below(DEGREES));
            if (t.kernel_starts[paddle.orientation] == t.kernel_starts[paddle.orientation + 1]) return false;
            find_places(paddle.orientation, places);
            if (places.empty()) return false;
            const int32_t place = places[stream.below(static_cast<int64_t>(places.size()))];
            paddle.y = place / p.window;
            paddle.x = place % p.window;
            if (fits(paddle)) return true;
        }
        return false;
    }

    bool draw_distractor(Paddle* paddles, std::vector<int32_t>& places) {
        if (!start_distractor(paddles[0], places)) return false;
        Tip tip = tip_of(paddles[0]);
        for (int next = 1; next < p.distractor_length; ++next) {
            if (!extend(tip, paddles[next - 1], paddles[next])) return false;
        }
        canvas.merge(paddles[p.distractor_length - 1]);
        return true;
    }

    // How many found room.
    int draw_distractors(Paddle* paddles) {
        int drawn = 0;
        std::vector<int32_t> places;
        std::vector<uint8_t> mask, spread;
        for (int snake = 0; snake < p.distractors; ++snake) {
            if (!find_taken()) break;
            mask = canvas.mask;
            spread = canvas.spread;
            for (int tries = 0; tries <= p.distractor_retries; ++tries) {
                if (draw_distractor(paddles + drawn * p.distractor_length, places)) {
                    ++drawn;
                    break;
                }
                canvas.mask = mask;
                canvas.spread = spread;
            }
        }
        return drawn;
    }
};

enum Fact { LABEL, MARGIN, ORIGIN, DISTRACTORS, ATTEMPTS, FACTS };

bool draw_image(const PathfinderProblem& p, uint64_t state, int64_t most, int32_t* facts, Paddle* paddles) {
    Stream stream{state};
    facts[LABEL] = static_cast<int32_t>(stream.below(2));
    facts[MARGIN] = static_cast<int32_t>(stream.below(p.margins_count));
    Artist artist(p, p.margins[facts[MARGIN]], stream);
    for (facts[ATTEMPTS] = 1; !artist.draw_targets(paddles); ++facts[ATTEMPTS]) {
        if (facts[ATTEMPTS] == p.most_attempts) return false;
    }
    facts[DISTRACTORS] = artist.draw_distractors(paddles + 2 * p.contour_length);
    std::fill(paddles + 2 * p.contour_length + facts[DISTRACTORS] * p.distractor_length, paddles + most, Paddle{});
    facts[ORIGIN] = static_cast<int32_t>(stream.below(2));
    return true;
}

}  // namespace

extern "C" {

// Draws `count` images from `states`. facts: (count, 5), see Fact; paddles: (count, most paddles, 3), those of the
// two targets in turn, then those of each distractor. Returns 0, or 1 where memory ran out, or 2 where the targets
// of an image found no room in `most_attempts`.
int msbench_pathfinder_draw(const PathfinderProblem* p, int64_t count, const uint64_t* states, int32_t* facts,
                            int32_t* paddles) {
    const int64_t most = 2 * int64_t{p->contour_length} + int64_t{p->distractors} * p->distractor_length;
    auto* drawn = reinterpret_cast<Paddle*>(paddles);
    try {
        for (int64_t image = 0; image < count; ++image) {
            if (!draw_image(*p, states[image], most, facts + image * FACTS, drawn + image * most)) return 2;
        }
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}
}
