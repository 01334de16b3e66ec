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
        // A NaN compares false: it takes the careful way.
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
        for (int64_t block = 0; block < blocks; ++block)
            for (int64_t i = 0; i < n; ++i) {
                T x[W] = {};
                for (int lane = 0; lane < lanes(block); ++lane) x[lane] = rate(s, block * W + lane, i);
                rates.get()[block * states + start(s) + i] = load(x, W);
            }
        for (int64_t channel = 0; channel < d; ++channel) survey(s, channel);
    }

    T rate(int64_t s, int64_t channel, int64_t i) const {
        return A[(s * d + channel) * n + i] * static_cast<T>(1.4426950408889634);
    }

    // A decay made from others has their rounding errors, and a slow one adds its own up over many steps. So slow ones
    // may not stand behind ones that are more than twice as fast.
    void survey(int64_t s, int64_t channel) {
        T &limit = steepest[static_cast<size_t>(s)], &gap = widest[static_cast<size_t>(s)], before = 0, fastest = 0;
        for (int64_t i = 0; i < n; ++i) {
            const T own = rate(s, channel, i), size = std::abs(own);
            limit = size <= limit ? limit : size;  // NaN wins
            fastest = i % FROM_ONE ? std::max(fastest, size) : size;
            const T apart = fastest <= 2 * size ? std::abs(own - before) : std::numeric_limits<T>::infinity();
            if (i % FROM_ONE) gap = apart <= gap ? gap : apart;
            before = own;
        }
    }
};

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
        __builtin_prefetch(reinterpret_cast<const void*>(
            reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(offset) * sizeof(T)));
    }
};

// One span of one stream and one block of channels, in order of steps and with whole vectors.
template <class T>
struct Span {
    Vector<T> u[STEPS], dt[STEPS], v[STEPS];  // v: what B brings into the state
    Vector<T> last[STEPS];                    // see Decays

    // Returns the largest dt. `streams`: null, or the inputs of this stream where a bank made them; `slopes`: null, or
    // room for those of step sizes made here.
    INLINE T read(const Plan<T>& p, const Place& at, int64_t block, const Vector<T>* streams, Vector<T>* slopes) {
        const int lanes = p.lanes(block), steps = p.steps(at.span);
        if (p.dt)
            rows(p, p.dt, at, block, dt);
        else
            p.steps_of.make(p.row(at, 0), at.s, block, lanes, steps, dt, slopes);
        if (streams)
            std::copy_n(streams, steps, u);
        else
            rows(p, p.u, at, block, u);
        Vector<T> most = {};
        for (int t = 0; t < steps; ++t) {
            v[t] = p.raw ? u[t] : dt[t] * u[t];
            most = dt[t] > most ? dt[t] : most;
        }
        return largest<T>(most);
    }

  private:
    INLINE void rows(const Plan<T>& p, const T* x, const Place& at, int64_t block, Vector<T>* to) {
        for (int t = 0; t < p.steps(at.span); ++t)
            to[t] = load(x + p.row(at, t) * p.d + block * p.W, p.lanes(block));
    }
};
