// A diagonal system that does not change in time, forward. A task is one example and a few blocks of channels, with all
// streams where they are mixed. Two multiplications and additions a state and step (but for slow ones, see poles.inl):
// the rest is once in STEPS steps.

template <class T>
class LtiForward {
    using V = Vector<T>;
    // States whose chains overlap, with their decays and weights in registers: of 32, or of 16.
    static constexpr int TOGETHER = BYTES == 64 ? 8 : 4;

  public:
    // out (b, l, d) where mixed, else (b, l, m, d); kept: null, or room for the outputs before they are mixed.
    LtiForward(const System<T>& system, T* out, T* kept)
        : sys(system), p(sys.p), out_(out), kept_(kept), together_(sys.mix ? p.m : 1),
          blocks_(std::clamp<int64_t>(p.b * sys.blocks * parts() / (4 * std::max(p.threads, 1)), 1, 4)) {}

    int64_t tasks() const { return p.b * groups() * parts(); }
    int64_t scratch() const { return blocks_ * together_ * p.n; }

    void operator()(int64_t task, V* h) const {
        const int64_t s = task % parts() * together_;
        const int64_t group = task / parts() % groups(), example = task / parts() / groups();
        const int64_t first = group * blocks_, last = std::min(first + blocks_, sys.blocks);
        std::fill_n(h, together_ * p.n * (last - first), V{});
        for (int64_t span = 0; span < sys.spans; ++span)
            for (int64_t block = first; block < last; ++block)
                advance(example, span, s, block, h + (block - first) * together_ * p.n);
    }

  private:
    const System<T>& sys;
    const LtiProblem& p;
    T *const out_, *const kept_;
    const int64_t together_;  // streams a task
    const int64_t blocks_;    // blocks of channels a task; it changes no result

    int64_t parts() const { return p.m / together_; }
    int64_t groups() const { return ceil_div(sys.blocks, blocks_); }

    void advance(int64_t example, int64_t span, int64_t first, int64_t block, V* h) const {
        const int lanes = sys.lanes(block), steps = sys.steps(span);
        V z[STEPS];
        std::fill_n(z, STEPS, V{});
        for (int64_t s = first; s < first + together_; ++s, h += p.n) {
            V u[STEPS], y[STEPS];
            read(example, span, s, block, u, y);
            if (sys.is_slow(block, s))
                stream<true>(u, steps, sys.pole(block, s), h, y);
            else
                stream<false>(u, steps, sys.pole(block, s), h, y);
            for (int t = 0; t < steps; ++t) {
                const int64_t row = sys.row(example, span, t, s);
                if (kept_) store(kept_ + row * p.d + block * sys.W, y[t], lanes);
                z[t] += sys.mix ? y[t] * sys.mix[row] : y[t];
            }
        }
        for (int t = 0; t < steps; ++t)
            store(out_ + sys.out_row(example, span, t, first) * p.d + block * sys.W, z[t], lanes);
    }

    // Rows of one block of channels lie far apart, so those of the next span are asked for early.
    INLINE void read(int64_t example, int64_t span, int64_t s, int64_t block, V* u, V* y) const {
        const V skip = sys.skipped(block, s);
        const int lanes = sys.lanes(block);
        for (int t = 0; t < sys.steps(span); ++t) {
            const T* const from = sys.u + sys.row(example, span, t, s) * p.d + block * sys.W;
            __builtin_prefetch(from + STEPS * p.m * p.d);
            u[t] = load(from, lanes);
            y[t] = skip * u[t];
        }
    }

    // Add the outputs of all states to y.
    template <bool SLOW_ONES>
    void stream(const V* u, int steps, const Pole<T>* poles, V* h, V* y) const {
        for (int64_t i = 0, count; i < p.n; i += count) {
            count = next_group(p.n - i, TOGETHER);
            group<SLOW_ONES, TOGETHER>(count, u, steps, poles + i, h + i, y);
        }
    }

    template <bool SLOW_ONES, int N>
    INLINE void group(int64_t count, const V* u, int steps, const Pole<T>* poles, V* state, V* y) const {
        if (count == N) {
            if constexpr (SLOW_ONES) return slow_update<N>(u, steps, poles, state, y);
            return update<N>(u, steps, poles, state, y);
        }
        if constexpr (N > 1) group<SLOW_ONES, N - 1>(count, u, steps, poles, state, y);
    }

    template <int N>
    INLINE void update(const V* u, int steps, const Pole<T>* poles, V* state, V* y) const {
        V h[N], decay[N], weight[N];
        for (int j = 0; j < N; ++j) h[j] = state[j], decay[j] = poles[j].decay, weight[j] = poles[j].weight;
        for (int t = 0; t < steps; ++t) {
            V out = y[t];
            for (int j = 0; j < N; ++j) {
                h[j] = decay[j] * h[j] + u[t];
                out += h[j] * weight[j];
            }
            y[t] = out;
        }
        // A span that is not whole is the last: what it leaves behind is not used.
        for (int j = 0; j < N; ++j) state[j] = flush<T>(poles[j].drift * state[j] + h[j]);
    }

    // The same in terms of the change since before the span.
    template <int N>
    INLINE void slow_update(const V* u, int steps, const Pole<T>* poles, V* state, V* y) const {
        V change[N] = {}, fall[N], before = {};
        for (int j = 0; j < N; ++j) {
            fall[j] = sys.less_one(poles)[j] * state[j];
            before += poles[j].weight * state[j];
        }
        for (int t = 0; t < steps; ++t) {
            V out = {};
            for (int j = 0; j < N; ++j) {
                change[j] = poles[j].decay * change[j] + (u[t] + fall[j]);
                out += change[j] * poles[j].weight;
            }
            y[t] += before + out;
        }
        for (int j = 0; j < N; ++j) state[j] = flush<T>(state[j] + change[j]);
    }
};

template <class T>
void run_lti_forward(const LtiProblem& problem, T* out, T* kept) {
    const System<T> system(problem);
    const LtiForward<T> work(system, out, kept);
    const int threads = system.threads(work.tasks());
    const Rooms<Vector<T>> states(threads, work.scratch());
    for_each_task(work.tasks(), threads, [&](int64_t task, int worker) { work(task, states[worker]); });
}
