// Snakes of Pathfinder images, behind a C interface (pathfinder.h).
//
// The same steps, in the same order and with the same numbers drawn as in msbench/datasets/pathfinder/snakes.py, which
// explains them. All numbers are integers, so the results of both are equal for any compiler.

#include <algorithm>
#include <new>
#include <vector>

#include "pathfinder_canvas.h"

namespace {

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
          forbidden(problem.window * problem.window) {}

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

    // Marks the pixels, border included, where no distractor may start; returns true if enough others are left.
    bool find_taken() {
        const int window = p.window, blocked = p.blocked;
        int64_t free = 0;
        for (int y = 0; y < window; ++y) {
            const uint8_t* mask = canvas.mask.data() + canvas.offset({y, 0});
            uint8_t* to = taken.data() + canvas.offset({y, 0});
            for (int x = 0; x < window; ++x) {
                to[x] = mask[x] >= blocked;
                free += !to[x];
            }
            if (y == 0 || y == window - 1) std::fill(to, to + window, uint8_t{1});
            to[0] = to[window - 1] = 1;
        }
        return RAW_SHARE * free >= int64_t{window} * window;
    }

    // Marks the pixels where a first paddle of this orientation has no room, and counts the others.
    int64_t find_room(int orientation) {
        const int window = p.window;  // a local, since the compiler must assume that bytes written alias a member
        int64_t free = 0;
        std::fill(forbidden.begin(), forbidden.end(), uint8_t{0});
        for (int y = 0; y < window; ++y) {
            uint8_t* to = forbidden.data() + y * window;
            for (int k = t.kernel_starts[orientation]; k < t.kernel_starts[orientation + 1]; ++k) {
                const uint8_t* from = taken.data() + canvas.offset(Point{y, 0} + at(t.kernel, k));
                for (int x = 0; x < window; ++x) to[x] |= from[x];
            }
            for (int x = 0; x < window; ++x) free += to[x] == 0;
        }
        return free;
    }

    // The free pixel with this number, in reading order.
    Point find_free(int64_t number) const {
        int place = 0;
        for (;; ++place) {
            if (!forbidden[place] && number-- == 0) return {place / p.window, place % p.window};
        }
    }

    bool start_distractor(Paddle& paddle) {
        for (int tries = 0; tries <= p.paddle_retries; ++tries) {
            paddle.orientation = static_cast<int32_t>(stream.below(DEGREES));
            if (t.kernel_starts[paddle.orientation] == t.kernel_starts[paddle.orientation + 1]) return false;
            const int64_t free = find_room(paddle.orientation);
            if (free == 0) return false;
            const Point place = find_free(stream.below(free));
            paddle.y = place.y;
            paddle.x = place.x;
            if (fits(paddle)) return true;
        }
        return false;
    }

    bool draw_distractor(Paddle* paddles) {
        if (!start_distractor(paddles[0])) return false;
        Tip tip = tip_of(paddles[0]);
        for (int next = 1; next < p.distractor_length; ++next) {
            if (!extend(tip, paddles[next - 1], paddles[next])) return false;
        }
        canvas.merge(paddles[p.distractor_length - 1]);
        return true;
    }

    // Draws the distractors; returns the number of those that fit.
    int draw_distractors(Paddle* paddles) {
        int drawn = 0;
        std::vector<uint8_t> mask, spread;
        for (int snake = 0; snake < p.distractors; ++snake) {
            if (!find_taken()) break;
            mask = canvas.mask;
            spread = canvas.spread;
            for (int tries = 0; tries <= p.distractor_retries; ++tries) {
                if (draw_distractor(paddles + drawn * p.distractor_length)) {
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
// of an image did not fit in `most_attempts`.
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
