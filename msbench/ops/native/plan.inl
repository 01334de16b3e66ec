// What all tasks of a scan share: typed arguments, derived sizes, and A as the inner loops want it.

// One span of steps of one stream of one example.
struct Place {
    int64_t example, span, s;
};

template <class T>
struct Plan {
    static constexpr int W = WIDTH<T>;
    const int64_t b, l, m, d, n;
    const T *const u, *const dt, *const A, *const B, *const C, *const skip, *const mix;
    const bool raw;
    const int64_t blocks, spans;  // of channels, of steps
    const int64_t states;         // of a channel, over all streams
    std::vector<T> steepest;  // largest |A log2(e)| of each stream
    std::vector<T> widest;    // largest difference of neighbours
    const LowRank<T> steps_of;  // where dt is null
    const BankProblem bank_problem;
    const std::unique_ptr<const Bank<T>> bank;  // null: u holds the streams
    Buffer<Vector<T>> rates;  // A log2(e): (blocks, states), channels beyond d are 0

    explicit Plan(const ScanProblem& p)
        : b(p.b), l(p.l), m(p.m), d(p.d), n(p.n),
          u(static_cast<const T*>(p.u)), dt(static_cast<const T*>(p.dt)), A(static_cast<const T*>(p.A)),
          B(static_cast<const T*>(p.B)), C(static_cast<const T*>(p.C)), skip(static_cast<const T*>(p.skip)),
          mix(static_cast<const T*>(p.mix)), raw(p.raw != 0),
          blocks(ceil_div(d, W)), spans(ceil_div(l, STEPS)),
          states(m * n), steepest(static_cast<size_t>(m)),
          widest(static_cast<size_t>(m)),
          steps_of(p), bank_problem{p.b, p.l, p.d, p.levels, 2, p.k, 1, p.u_example, p.u_step, p.u, p.taps,
                                    p.taps_bias, p.threads, p.instructions},
          bank(p.taps ? std::make_unique<const Bank<T>>(bank_problem) : nullptr),
          rates(states * blocks) {
        for (int64_t s = 0; s < m; ++s) pack_rates(s);
    }

    int lanes(int64_t block) const { return static_cast<int>(std::min<int64_t>(W, d - block * W)); }
    int steps(int64_t span) const { return static_cast<int>(std::min<int64_t>(STEPS, l - span * STEPS)); }
    int64_t start(int64_t s) const { return s * n; }  // of the states of a stream

    // Row of the step `t` of a span in u, dt, B, C and mix; in the output.
    int64_t row(const Place& at, int t) const {
        return (at.example * l + at.span * STEPS + t) * m + at.s;
    }
    int64_t out_row(const Place& at, int t) const {
        return mix ? at.example * l + at.span * STEPS + t : row(at, t);
    }
    int64_t out_streams() const { return mix ? 1 : m; }

    // Where the states of a block of channels before a span of steps are kept.
    int64_t kept(int64_t example, int64_t block, int64_t span) const {
        return ((example * blocks + block) * spans + span) * states;
    }

    int64_t rank() const { return steps_of.r; }

    // Calls run with the way to make the decays of a stream, as a constant.
    template <class Run>
    INLINE void with_decay(int64_t s, T largest_dt, const Run& run) const {
        const size_t index = static_cast<size_t>(s);
        // A product that is NaN compares false: it takes the careful way.
        if (!(largest_dt * steepest[index] < static_cast<T>(MILD_LIMIT)))
            return run(std::integral_constant<Decay, Decay::CAREFUL>());
        const T apart = largest_dt * widest[index];
        if (apart < static_cast<T>(NEAR_LIMIT<Decay::NEARER>))
            return run(std::integral_constant<Decay, Decay::NEARER>());
        if (apart < static_cast<T>(NEAR_LIMIT<Decay::NEAR>)) return run(std::integral_constant<Decay, Decay::NEAR>());
        return run(std::integral_constant<Decay, Decay::MILD>());
    }

  private:
    void pack_rates(int64_t s) {
        Vector<T> limit = {}, gap = {};
        for (int64_t block = 0; block < blocks; ++block) {
            Vector<T>* const own = rates.get() + block * states + start(s);
            for (int64_t i = 0; i < n; ++i) {
                T x[W] = {};
                for (int lane = 0; lane < lanes(block); ++lane) x[lane] = rate(s, block * W + lane, i);
                own[i] = load(x, W);
            }
            survey(own, limit, gap);
        }
        steepest[static_cast<size_t>(s)] = largest<T>(limit);
        widest[static_cast<size_t>(s)] = largest<T>(gap);
    }

    T rate(int64_t s, int64_t channel, int64_t i) const {
        return A[(s * d + channel) * n + i] * static_cast<T>(1.4426950408889634);
    }

    // A decay made from others has their rounding errors, and a slow one adds its own up over many steps. So slow ones
    // may not stand behind ones that are more than twice as fast.
    void survey(const Vector<T>* own, Vector<T>& limit, Vector<T>& gap) const {
        const Vector<T> never = Vector<T>{} + std::numeric_limits<T>::infinity();
        Vector<T> before = {}, fastest = {};
        for (int64_t i = 0; i < n; ++i) {
            // A NaN is as an infinite rate: see with_decay.
            const Vector<T> size = own[i] == own[i] ? absolute<T>(own[i]) : never;
            limit = size > limit ? size : limit;
            if (i % FROM_ONE) {
                fastest = size > fastest ? size : fastest;
                const Vector<T> apart = fastest <= 2 * size ? absolute<T>(own[i] - before) : never;
                gap = apart > gap ? apart : gap;
            } else {
                fastest = size;
            }
            before = own[i];
        }
    }
};

// Into the second-level cache: the first has no room for what is wanted a span later, and while it waits for memory it
// has less to give to what is wanted now. With prefetches to the first the backward took 1.05 times as long.
INLINE void fetch_ahead(const void* address) { __builtin_prefetch(address, 0, 2); }

// Rows that will be wanted in the next span, or at the end of this one: one a step. They lie pages apart, where the
// processor does not fetch by itself. Asked for one at a time while states are computed, they come for nothing; asked
// for all at once they filled the queue, and took a tenth of the time.
template <class T>
struct Ahead {
    const T* from = nullptr;
    int64_t step = 0;

    INLINE void fetch(int64_t block, int t) const {
        // By address: arithmetic on the pointer is not defined where it is null, or outside of the array.
        const int64_t offset = block * WIDTH<T> + t * step;
        fetch_ahead(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) +
                                                  static_cast<uintptr_t>(offset) * sizeof(T)));
    }
};

// The first lanes of some rows, and back. Strides and lengths by value: a loop need not ask for them after each store.
template <class T>
INLINE void read_rows(const T* from, int64_t stride, int steps, int lanes, Vector<T>* to) {
    for (int t = 0; t < steps; ++t) to[t] = load(from + t * stride, lanes);
}

template <class T>
INLINE void write_rows(T* to, int64_t stride, int steps, int lanes, const Vector<T>* from) {
    for (int t = 0; t < steps; ++t) store(to + t * stride, from[t], lanes);
}

// One span of one stream and one block of channels, in order of steps and with whole vectors.
template <class T>
struct Span {
    Vector<T> dt[STEPS], v[STEPS];  // v: what B brings into the state
    Vector<T> last[STEPS];          // see Decays

    // u: see input(). Returns the largest dt of each lane. `slopes`: null, or room for those of step sizes made here.
    INLINE Vector<T> read(const Plan<T>& p, const Place& at, int64_t block, const Vector<T>* u, Vector<T>* slopes) {
        const int lanes = p.lanes(block), steps = p.steps(at.span);
        const bool raw = p.raw;
        if (p.dt)
            read_rows(p.dt + p.row(at, 0) * p.d + block * p.W, p.m * p.d, steps, lanes, dt);
        else
            p.steps_of.make(p.row(at, 0), at.s, block, lanes, steps, dt, slopes);
        Vector<T> most = {};
        for (int t = 0; t < steps; ++t) {
            v[t] = raw ? u[t] : dt[t] * u[t];
            most = dt[t] > most ? dt[t] : most;
        }
        return most;
    }
};

// The inputs of one span: `made` by a bank, or where that is null read into `room`.
template <class T>
INLINE const Vector<T>* input(const Plan<T>& p, const Place& at, int64_t block, const Vector<T>* made,
                              Vector<T>* room) {
    if (made) return made;
    read_rows(p.u + p.row(at, 0) * p.d + block * p.W, p.m * p.d, p.steps(at.span), p.lanes(block), room);
    return room;
}
