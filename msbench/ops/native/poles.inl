// The decays of a system that does not change in time, so precise that nothing drifts.
//
// A decay near 1 is rounded by up to 2^-25, and a state that lives for 16,384 steps would multiply that by as many.
// Stepping with h += expm1(log decay) h + u instead would cost a third more instructions. What is done here costs one
// in 16 steps: the product of STEPS rounded decays is known, so is what it should be, and the difference, times the
// state before the span, is added behind it.

template <class T>
struct Pole {
    Vector<T> decay;
    Vector<T> drift;  // exp(STEPS log decay) - decay^STEPS
    Vector<T> weight;
};

// (e^x - 1) for |x| < 0.35, relative error 1e-8 before rounding.
INLINE Lanes<float>::V expm1_small(const Lanes<float>::V& x) {
    Lanes<float>::V sum = x * (1.0F / 5040) + 1.0F / 720;
    sum = sum * x + 1.0F / 120;
    sum = sum * x + 1.0F / 24;
    sum = sum * x + 1.0F / 6;
    sum = sum * x + 0.5F;
    return sum * (x * x) + x;
}

struct Exponential {
    Lanes<float>::V whole, less_one;  // e^x, e^x - 1
};

INLINE Exponential exponential(const Lanes<float>::V& x) {
    using V = Lanes<float>::V;
    const V log2_e[1] = {V{} + 1.44269504F};
    V result[1];
    exp2_product<false, 1>(x, log2_e, result);
    const auto small = (x < 0.35F) & (x > -0.35F);
    const V less_one = small ? expm1_small(x) : result[0] - 1.0F;
    return {small ? less_one + 1.0F : result[0], less_one};
}

INLINE void set_decay(Pole<float>& pole, const Lanes<float>::V& log_decay) {
    using V = Lanes<float>::V;
    const V x = static_cast<float>(STEPS) * log_decay;
    pole.decay = exponential(log_decay).whole;
    V power = pole.decay - 1.0F;  // exact where it matters; then (1 + e)^2 = 1 + e (e + 2)
    for (int steps = 1; steps < STEPS; steps *= 2) power = power * (power + 2.0F);
    // Below -4 a state is gone before its rounding shows.
    pole.drift = ((x > -4.0F) & (x < 4.0F)) ? exponential(x).less_one - power : V{};
}

INLINE void set_decay(Pole<double>& pole, const Lanes<double>::V& log_decay) {
    for (int i = 0; i < WIDTH<double>; ++i) pole.decay[i] = std::exp(log_decay[i]);
    pole.drift = Lanes<double>::V{};
}
static_assert((STEPS & (STEPS - 1)) == 0, "powers are made by squaring");

// What all tasks share.
template <class T>
struct System {
    static constexpr int W = WIDTH<T>;
    const LtiProblem& p;
    const T *const u, *const skip, *const mix;
    const int64_t blocks, spans;  // of channels, of steps
    Buffer<Pole<T>> poles;        // (blocks, m, n), channels beyond d have no weight

    explicit System(const LtiProblem& problem)
        : p(problem), u(static_cast<const T*>(p.u)), skip(static_cast<const T*>(p.skip)),
          mix(static_cast<const T*>(p.mix)), blocks(ceil_div(p.d, W)), spans(ceil_div(p.l, STEPS)),
          poles(blocks * p.m * p.n) {
        for (int64_t block = 0; block < blocks; ++block)
            for (int64_t i = 0; i < p.m * p.n; ++i) {
                Pole<T>& pole = poles.get()[block * p.m * p.n + i];
                set_decay(pole, load(static_cast<const T*>(p.log_decay) + i * p.d + block * W, lanes(block)));
                pole.weight = load(static_cast<const T*>(p.weight) + i * p.d + block * W, lanes(block));
            }
    }

    int threads(int64_t tasks) const {
        return threads_for(p.b * p.l * p.m * p.d * p.n, STATES_PER_THREAD, tasks, p.threads);
    }
    int lanes(int64_t block) const { return static_cast<int>(std::min<int64_t>(W, p.d - block * W)); }
    int steps(int64_t span) const { return static_cast<int>(std::min<int64_t>(STEPS, p.l - span * STEPS)); }
    const Pole<T>* pole(int64_t block, int64_t s) const { return poles.get() + (block * p.m + s) * p.n; }
    Vector<T> skipped(int64_t block, int64_t s) const {
        return skip ? load(skip + s * p.d + block * W, lanes(block)) : Vector<T>{};
    }
    // Row of the step `t` of a span in u and mix; in the output.
    int64_t row(int64_t example, int64_t span, int t, int64_t s) const {
        return (example * p.l + span * STEPS + t) * p.m + s;
    }
    int64_t out_row(int64_t example, int64_t span, int t, int64_t s) const {
        return mix ? example * p.l + span * STEPS + t : row(example, span, t, s);
    }
    int64_t out_streams() const { return mix ? 1 : p.m; }
};

// States of the next group, of at most `most`, where `left` are left: the last two share what a whole one leaves, for
// the chain of a single state has nothing to overlap with.
inline int64_t next_group(int64_t left, int64_t most) {
    return left >= 2 * most || left <= most ? std::min(left, most) : (left + 1) / 2;
}
