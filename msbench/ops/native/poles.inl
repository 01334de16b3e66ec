// The decays of a system that does not change in time, and what keeps slow ones from drifting.
//
// A decay near 1 is rounded by up to 2^-25, and a state that lives for 1,000 steps multiplies that by as many. But the
// product of STEPS rounded decays is known, and so is what it should be: the difference, times the state before a span
// of STEPS steps, is added behind it. That leaves the rounding of the states themselves, half a unit in the last place a
// step, and of the same sign where little changes. So states that are slower still are counted in a span from where they
// were before it, h = h0 + r, and it is the small r that is rounded:
//
//     r_t = a r_{t-1} + (u_t + (a - 1) h0)
//
// which is half as much work again.

constexpr double SLOW = 1e-3;  // log decays above -SLOW

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

// Returns decay - 1.
INLINE Lanes<float>::V set_decay(Pole<float>& pole, const Lanes<float>::V& log_decay) {
    using V = Lanes<float>::V;
    const V x = static_cast<float>(STEPS) * log_decay;
    const Exponential one = exponential(log_decay);
    pole.decay = one.whole;
    V power = pole.decay - 1.0F;  // exact where it matters; then (1 + e)^2 = 1 + e (e + 2)
    for (int steps = 1; steps < STEPS; steps *= 2) power = power * (power + 2.0F);
    // Below -4 a state is gone before its rounding shows.
    pole.drift = ((x > -4.0F) & (x < 4.0F)) ? exponential(x).less_one - power : V{};
    return one.less_one;
}

INLINE Lanes<double>::V set_decay(Pole<double>& pole, const Lanes<double>::V& log_decay) {
    Lanes<double>::V less_one;
    for (int i = 0; i < WIDTH<double>; ++i)
        pole.decay[i] = std::exp(log_decay[i]), less_one[i] = std::expm1(log_decay[i]);
    pole.drift = Lanes<double>::V{};
    return less_one;
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
    Buffer<Vector<T>> less_ones;  // decay - 1, the same; apart, for few want them and poles fill the first-level cache
    std::vector<char> slow;       // (blocks, m), whether any state of any channel is

    explicit System(const LtiProblem& problem)
        : p(problem), u(static_cast<const T*>(p.u)), skip(static_cast<const T*>(p.skip)),
          mix(static_cast<const T*>(p.mix)), blocks(ceil_div(p.d, W)), spans(ceil_div(p.l, STEPS)),
          poles(blocks * p.m * p.n), less_ones(blocks * p.m * p.n), slow(static_cast<size_t>(blocks * p.m)) {
        for (int64_t block = 0; block < blocks; ++block)
            for (int64_t i = 0; i < p.m * p.n; ++i) {
                const int64_t from = i * p.d + block * W, to = block * p.m * p.n + i;
                const T* const log_decay = static_cast<const T*>(p.log_decay) + from;
                less_ones.get()[to] = set_decay(poles.get()[to], load(log_decay, lanes(block)));
                poles.get()[to].weight = load(static_cast<const T*>(p.weight) + from, lanes(block));
                const auto is_slow = [](T x) { return std::abs(x) < static_cast<T>(SLOW); };
                if (std::any_of(log_decay, log_decay + lanes(block), is_slow))
                    slow[static_cast<size_t>(block * p.m + i / p.n)] = 1;
            }
    }

    int threads(int64_t tasks) const {
        return threads_for(p.b * p.l * p.m * p.d * p.n, STATES_PER_THREAD, tasks, p.threads);
    }
    int lanes(int64_t block) const { return static_cast<int>(std::min<int64_t>(W, p.d - block * W)); }
    int steps(int64_t span) const { return static_cast<int>(std::min<int64_t>(STEPS, p.l - span * STEPS)); }
    const Pole<T>* pole(int64_t block, int64_t s) const { return poles.get() + (block * p.m + s) * p.n; }
    const Vector<T>* less_one(const Pole<T>* one) const { return less_ones.get() + (one - poles.get()); }
    bool is_slow(int64_t block, int64_t s) const { return slow[static_cast<size_t>(block * p.m + s)] != 0; }
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
