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
    std::vector<int64_t> counts;  // states of each stream ...
    std::vector<int64_t> first;   // ... and the number of its first one; at the end, the number of all states
    int64_t states = 0;
    std::vector<T> steepest;  // largest |A log2(e)| of each stream
    Buffer<Vector<T>> rates;  // A log2(e): (blocks, states), channels beyond d are 0

    explicit Plan(const ScanProblem& p)
        : b(p.b), l(p.l), m(p.m), d(p.d), n(p.n),
          u(static_cast<const T*>(p.u)), dt(static_cast<const T*>(p.dt)), A(static_cast<const T*>(p.A)),
          B(static_cast<const T*>(p.B)), C(static_cast<const T*>(p.C)), skip(static_cast<const T*>(p.skip)),
          mix(static_cast<const T*>(p.mix)), raw(p.raw != 0),
          blocks(ceil_div(d, W)), spans(ceil_div(l, STEPS)),
          counts(static_cast<size_t>(m), n), steepest(static_cast<size_t>(m)),
          rates((p.counts ? count_all(p) : m * n) * blocks) {
        if (p.counts) std::copy(p.counts, p.counts + m, counts.begin());
        for (const int64_t count : counts) {
            first.push_back(states);
            states += count;
        }
        for (int64_t s = 0; s < m; ++s) pack_rates(s);
    }

    static int64_t count_all(const ScanProblem& p) {
        int64_t sum = 0;
        for (int64_t s = 0; s < p.m; ++s) sum += p.counts[s];
        return sum;
    }

    int lanes(int64_t block) const { return static_cast<int>(std::min<int64_t>(W, d - block * W)); }
    int steps(int64_t span) const { return static_cast<int>(std::min<int64_t>(STEPS, l - span * STEPS)); }
    int64_t count(int64_t s) const { return counts[static_cast<size_t>(s)]; }
    int64_t start(int64_t s) const { return first[static_cast<size_t>(s)]; }

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

    bool mild(int64_t s, T largest_dt) const {
        return largest_dt * steepest[static_cast<size_t>(s)] < static_cast<T>(MILD_LIMIT);
    }

  private:
    void pack_rates(int64_t s) {
        constexpr T LOG2_E = static_cast<T>(1.4426950408889634);
        T& limit = steepest[static_cast<size_t>(s)];
        for (int64_t block = 0; block < blocks; ++block)
            for (int64_t i = 0; i < count(s); ++i) {
                T x[W] = {};
                for (int lane = 0; lane < lanes(block); ++lane) {
                    x[lane] = A[(s * d + block * W + lane) * n + i] * LOG2_E;
                    limit = std::abs(x[lane]) <= limit ? limit : std::abs(x[lane]);  // NaN wins
                }
                rates.get()[block * states + start(s) + i] = load(x, W);
            }
    }
};

// One span of one stream and one block of channels, in order of steps and with whole vectors.
template <class T>
struct Span {
    Vector<T> u[STEPS], dt[STEPS], v[STEPS];  // v: what B brings into the state

    // Returns the largest dt. Fetches the rows `ahead` steps on: those of one block of channels lie pages apart,
    // where the processor does not fetch by itself; that saves a tenth of the forward, a sixth of the backward.
    INLINE T read(const Plan<T>& p, const Place& at, int64_t block, int ahead) {
        const int lanes = p.lanes(block), steps = p.steps(at.span);
        const int64_t next = ahead * p.m * p.d;
        Vector<T> most = {};
        for (int t = 0; t < steps; ++t) {
            const int64_t from = p.row(at, t) * p.d + block * p.W;
            __builtin_prefetch(p.u + from + next);
            __builtin_prefetch(p.dt + from + next);
            u[t] = load(p.u + from, lanes);
            dt[t] = load(p.dt + from, lanes);
            v[t] = p.raw ? u[t] : dt[t] * u[t];
            most = dt[t] > most ? dt[t] : most;
        }
        return largest<T>(most);
    }
};
